// A path between a worker and a server on which nothing moves although something should, call after
// call: what the worker tells the coordinator of it.
#pragma once

#include "absl/time/time.h"

namespace lodestar {

struct Standstill {
  int shard = 0;
  absl::Duration age;  // since anything has moved, or its server gave a reason why not
};

}  // namespace lodestar
