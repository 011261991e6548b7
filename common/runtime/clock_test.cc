// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/testing/simulated_clock.h"

namespace lodestar {
namespace {

TEST(RealClockTest, NeverGoesBack) {
  for (Clock* const clock : {&Clock::Real(), &Clock::RealThroughSuspend()}) {
    absl::Time previous = clock->Now();
    for (int i = 0; i < 1000; ++i) {
      const absl::Time now = clock->Now();
      ASSERT_LE(previous, now);
      previous = now;
    }
  }
}

TEST(RealClockTest, AwaitEndsWhenTheConditionHolds) {
  absl::Mutex mutex;
  bool ready = false;
  std::thread setter([&] {
    absl::MutexLock lock(&mutex);
    ready = true;
  });
  {
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(Clock::Real().Await(mutex, absl::Condition(&ready), absl::Hours(1)));
  }
  setter.join();
}

TEST(SimulatedClockTest, StandsStillUntilAdvanced) {
  SimulatedClock clock;
  const absl::Time start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.AdvanceTime(absl::Seconds(3));
  EXPECT_EQ(clock.Now() - start, absl::Seconds(3));
}

TEST(SimulatedClockTest, SleepEndsWhenTimeHasAdvancedFarEnough) {
  SimulatedClock clock;
  const absl::Time start = clock.Now();
  std::atomic<bool> is_awake = false;
  std::thread sleeper([&] {
    clock.Sleep(absl::Seconds(10));
    is_awake = true;
  });
  clock.AwaitSleepers(1);
  clock.AdvanceTime(absl::Seconds(9));
  EXPECT_FALSE(is_awake);
  clock.AdvanceTime(absl::Seconds(1));
  sleeper.join();
  EXPECT_TRUE(is_awake);
  EXPECT_EQ(clock.Now() - start, absl::Seconds(10));
}

TEST(SimulatedClockTest, SleepAdvancesTheTimeWhenAskedTo) {
  SimulatedClock clock(SimulatedClock::OnSleep::kAdvance);
  const absl::Time start = clock.Now();
  clock.Sleep(absl::Hours(5));
  EXPECT_EQ(clock.Now() - start, absl::Hours(5));
}

TEST(SimulatedClockTest, AwaitTimesOutInSimulatedTime) {
  SimulatedClock clock;
  absl::Mutex mutex;
  bool never = false;
  std::thread waiter([&] {
    absl::MutexLock lock(&mutex);
    EXPECT_FALSE(clock.Await(mutex, absl::Condition(&never), absl::Hours(1)));
  });
  clock.AwaitSleepers(1);
  clock.AdvanceTime(absl::Hours(1));
  waiter.join();
}

TEST(SimulatedClockTest, AwaitEndsEarlyWithoutAdvancing) {
  SimulatedClock clock;
  const absl::Time start = clock.Now();
  absl::Mutex mutex;
  bool ready = false;
  std::thread waiter([&] {
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(clock.Await(mutex, absl::Condition(&ready), absl::Hours(1)));
  });
  clock.AwaitSleepers(1);
  {
    absl::MutexLock lock(&mutex);
    ready = true;
  }
  waiter.join();
  EXPECT_EQ(clock.Now(), start);
}

}  // namespace
}  // namespace lodestar
