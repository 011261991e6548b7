// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/clock.h"

#include <ctime>

#include "absl/time/clock.h"

namespace lodestar {
namespace {

class RealClock : public Clock {
 public:
  explicit RealClock(clockid_t source) : source_(source) {}

  absl::Time Now() override {
    // The steady clock was compared with the wall clock once, at the start. So later jumps of the
    // wall clock have no effect.
    return wall_start_ + (Read() - steady_start_);
  }

  void Sleep(absl::Duration duration) override { absl::SleepFor(duration); }

 private:
  absl::Duration Read() const {
    timespec now = {};
    clock_gettime(source_, &now);
    return absl::DurationFromTimespec(now);
  }

  const clockid_t source_;
  const absl::Time wall_start_ = absl::Now();
  const absl::Duration steady_start_ = Read();
};

}  // namespace

bool Clock::Await(absl::Mutex& mutex, const absl::Condition& condition, absl::Duration timeout) {
  return mutex.AwaitWithTimeout(condition, timeout);
}

Clock& Clock::Real() {
  // The clock is never destroyed, because threads may outlive main().
  static RealClock* const clock = new RealClock(CLOCK_MONOTONIC);
  return *clock;
}

Clock& Clock::RealThroughSuspend() {
  static RealClock* const clock = new RealClock(CLOCK_BOOTTIME);
  return *clock;
}

}  // namespace lodestar
