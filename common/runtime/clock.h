// SPDX-License-Identifier: Apache-2.0

// All code that waits or measures time gets a Clock from its caller. Tests pass a SimulatedClock
// (common/testing).
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lodestar {

class Clock {
 public:
  virtual ~Clock() = default;
  // Returns the time, which never goes back. Compare it only with times of the same clock.
  // Thread-safe.
  virtual absl::Time Now() = 0;
  // Blocks the calling thread. Thread-safe.
  virtual void Sleep(absl::Duration duration) = 0;
  // Sleeps until `condition` holds or `timeout` of this clock has passed. The caller holds `mutex`,
  // which is released during the wait. Returns true if the condition holds.
  virtual bool Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Returns the machine's clock, which lives for the whole process.
  static Clock& Real();
  // Returns a clock like Real() that also counts the time in which the machine is suspended. Use it
  // for times that other machines count too, such as a lease that they have granted. Sleep() and
  // Await() do not count suspended time.
  static Clock& RealThroughSuspend();
};

}  // namespace lodestar
