// What a shard finds wrong with a worker's part of a round, for the coordinator to decide about.
#pragma once

#include <cstdint>
#include <string>

#include "common/ids.h"

namespace lodestar {

struct WorkerFault {
  enum class Kind : uint8_t {
    kNotFinite,  // its numbers are NaN, infinite or beyond all reason; they are not counted
    kNotPushed,  // it has reported the round without having pushed all of it
  };
  WorkerId worker;
  Incarnation incarnation;
  Round round;
  Kind kind = Kind::kNotFinite;
  std::string text;
};

}  // namespace lodestar
