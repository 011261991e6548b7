// SPDX-License-Identifier: Apache-2.0

// SimulatedClock: a clock whose time changes only when a test changes it.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/clock.h"

namespace lodestar {

// A clock for tests. Thread-safe.
class SimulatedClock : public Clock {
 public:
  enum class OnSleep {
    kWait,     // Sleep() blocks until another thread has advanced the time far enough
    kAdvance,  // Sleep() advances the time itself, for tests with one thread
  };

  explicit SimulatedClock(OnSleep on_sleep = OnSleep::kWait,
                          absl::Time start = absl::UnixEpoch() + absl::Hours(24 * 365 * 50))
      : on_sleep_(on_sleep), now_(start) {}

  absl::Time Now() override ABSL_LOCKS_EXCLUDED(mutex_);
  void Sleep(absl::Duration duration) override ABSL_LOCKS_EXCLUDED(mutex_);
  bool Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_LOCKS_EXCLUDED(mutex_);

  void AdvanceTime(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until `count` threads are inside Sleep() or Await().
  void AwaitSleepers(int count) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const OnSleep on_sleep_;
  absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
  int num_sleepers_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lodestar
