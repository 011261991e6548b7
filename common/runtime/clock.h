// Time as a dependency: everything that waits or measures takes a Clock. SimulatedClock
// (common/testing) drives tests.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lodestar {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic; comparable only with values of the same clock. Thread-safe.
  virtual absl::Time Now() = 0;
  // Blocks the calling thread. Thread-safe.
  virtual void Sleep(absl::Duration duration) = 0;
  // A sleep that can end early: waits with `mutex` (held by the caller) released until `condition`
  // holds or `timeout` of this clock has passed. Returns whether the condition holds.
  virtual bool Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // The machine's clock; lives for the whole process.
  static Clock& Real();
  // The same, but it goes on while the machine is suspended: for what others count as well, such as
  // a lease that they have granted. Waits still end by the time in which the machine runs.
  static Clock& RealThroughSuspend();
};

}  // namespace lodestar
