// Time as a dependency: everything that waits or measures takes a Clock. SimulatedClock
// (common/testing) drives tests.
#pragma once

#include "absl/time/time.h"

namespace lodestar {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic; comparable only with values of the same clock. Thread-safe.
  virtual absl::Time Now() = 0;
  // Blocks the calling thread. Thread-safe.
  virtual void Sleep(absl::Duration duration) = 0;

  // The machine's clock; lives for the whole process.
  static Clock& Real();
};

}  // namespace lodestar
