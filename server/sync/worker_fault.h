// SPDX-License-Identifier: Apache-2.0

// A WorkerFault is what a shard finds wrong with a worker's contribution to a round. The
// coordinator decides what happens to the worker. A fault may be reported once per bucket.
#pragma once

#include <cstdint>
#include <string>

#include "common/runtime/ids.h"

namespace lodestar::sync {

struct WorkerFault {
  enum class Kind : uint8_t {
    kNotFinite,  // its numbers are NaN, infinite or far too large; they do not count
    kNotPushed,  // it has reported the round without having pushed all of its part
    kTooLong,    // its norm is far beyond the others' norms; it counts scaled to the usual norm
    kOpposed,    // over many rounds it points away from the direction of the others; it counts
    kUnrelated,  // over many rounds it has nothing in common with the others; it counts
  };
  WorkerId worker;
  Incarnation incarnation;
  Round round;
  Kind kind = Kind::kNotFinite;
  std::string text;
};

}  // namespace lodestar::sync
