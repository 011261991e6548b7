// What a shard finds wrong with a worker's part of a round, for the coordinator to decide about: it
// may come once for every bucket.
#pragma once

#include <cstdint>
#include <string>

#include "common/runtime/ids.h"

namespace lodestar {

struct WorkerFault {
  enum class Kind : uint8_t {
    kNotFinite,  // its numbers are NaN, infinite or beyond all reason; they are not counted
    kNotPushed,  // it has reported the round without having pushed all of it
    kTooLong,    // its norm is far beyond that of others; it counts as if it were as long as theirs
    kOpposed,    // over many rounds it points away from where the others point; it counts
    kUnrelated,  // over many rounds it has nothing in common with the others; it counts
  };
  WorkerId worker;
  Incarnation incarnation;
  Round round;
  Kind kind = Kind::kNotFinite;
  std::string text;
};

}  // namespace lodestar
