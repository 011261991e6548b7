// SPDX-License-Identifier: Apache-2.0

#include "common/testing/simulated_clock.h"

#include <algorithm>

namespace lodestar {

absl::Time SimulatedClock::Now() {
  absl::MutexLock lock(&mutex_);
  return now_;
}

void SimulatedClock::Sleep(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  const absl::Time wake_time = now_ + std::max(duration, absl::ZeroDuration());
  if (on_sleep_ == OnSleep::kAdvance) {
    now_ = wake_time;
    return;
  }
  ++num_sleepers_;
  const auto is_over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return now_ >= wake_time; };
  mutex_.Await(absl::Condition(&is_over));
  --num_sleepers_;
}

bool SimulatedClock::Await(absl::Mutex& mutex, const absl::Condition& condition,
                           absl::Duration timeout) {
  if (on_sleep_ == OnSleep::kAdvance) {
    if (mutex.AwaitWithTimeout(condition, absl::ZeroDuration())) return true;
    AdvanceTime(std::max(timeout, absl::ZeroDuration()));
    return mutex.AwaitWithTimeout(condition, absl::ZeroDuration());
  }
  // AdvanceTime() does not wake threads that wait on the caller's mutex. So this function checks
  // the simulated time once per interval of real time.
  constexpr absl::Duration kPollInterval = absl::Milliseconds(1);
  absl::Time deadline;
  {
    absl::MutexLock lock(&mutex_);
    deadline = now_ + timeout;
    ++num_sleepers_;
  }
  bool holds = false;
  do {
    holds = mutex.AwaitWithTimeout(condition, kPollInterval);
  } while (!holds && Now() < deadline);
  absl::MutexLock lock(&mutex_);
  --num_sleepers_;
  return holds;
}

void SimulatedClock::AdvanceTime(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  now_ += duration;
}

void SimulatedClock::AwaitSleepers(int count) {
  absl::MutexLock lock(&mutex_);
  const auto are_asleep = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return num_sleepers_ >= count;
  };
  mutex_.Await(absl::Condition(&are_asleep));
}

}  // namespace lodestar
