// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/checkpoints/checkpoint_schedule.h"

#include <gtest/gtest.h>

namespace lodestar::checkpoints {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(CheckpointScheduleTest, ByRoundsEachRoundIsDueOnce) {
  CheckpointSchedule schedule({.every_rounds = 5});
  schedule.Restart(Round(0), kStart);
  EXPECT_FALSE(schedule.IsDueByRound(Round(0))) << "the job starts there";
  EXPECT_FALSE(schedule.IsDueByRound(Round(4)));
  EXPECT_TRUE(schedule.IsDueByRound(Round(5)));
  schedule.OnBegun(Round(5), kStart);
  EXPECT_FALSE(schedule.IsDueByRound(Round(5)));
  EXPECT_TRUE(schedule.IsDueByRound(Round(10)));
  EXPECT_FALSE(schedule.IsDueByTime(Round(10), kStart + absl::Hours(10)));
}

TEST(CheckpointScheduleTest, ByTimeTheFirstFollowsARoundAndThePausesDoubleUpToTheInterval) {
  CheckpointSchedule schedule({.interval = absl::Minutes(1)});
  EXPECT_FALSE(schedule.IsDueByTime(Round(8), kStart)) << "nothing runs yet";
  absl::Time begun = kStart;
  for (int start = 0; start < 2; ++start) {
    schedule.Restart(Round(7), begun);
    EXPECT_FALSE(schedule.IsDueByTime(Round(7), begun + absl::Hours(1))) << "no round is complete";
    begun += absl::Seconds(3);
    EXPECT_TRUE(schedule.IsDueByTime(Round(8), begun));
    for (const int seconds : {10, 20, 40, 60, 60}) {
      schedule.OnBegun(Round(9), begun);
      const absl::Duration pause = absl::Seconds(seconds);
      EXPECT_FALSE(schedule.IsDueByTime(Round(10), begun + pause - absl::Seconds(1))) << pause;
      EXPECT_TRUE(schedule.IsDueByTime(Round(10), begun + pause)) << pause;
      EXPECT_EQ(schedule.interval(), pause);
      EXPECT_FALSE(schedule.is_stretched());
      begun += pause;
    }
  }
  EXPECT_FALSE(schedule.IsDueByRound(Round(10)));
}

TEST(CheckpointScheduleTest, AnIntervalBelowTheFirstPauseHolds) {
  CheckpointSchedule schedule({.interval = absl::Seconds(2)});
  schedule.Restart(Round(0), kStart);
  schedule.OnBegun(Round(1), kStart);
  EXPECT_EQ(schedule.interval(), absl::Seconds(2));
}

TEST(CheckpointScheduleTest, ASlowDiskStretchesTheIntervalToTheCostAllowed) {
  CheckpointSchedule schedule({.interval = absl::Minutes(5), .max_cost = 0.01});
  schedule.Restart(Round(0), kStart);
  schedule.OnBegun(Round(1), kStart);
  schedule.OnWritten(absl::Seconds(2));
  EXPECT_EQ(schedule.interval(), absl::Seconds(200)) << "the cost counts from the first one on";
  EXPECT_FALSE(schedule.is_stretched());
  schedule.OnWritten(absl::Seconds(12));
  EXPECT_EQ(schedule.interval(), absl::Seconds(200));
  schedule.OnWritten(absl::Seconds(12));
  EXPECT_EQ(schedule.interval(), absl::Minutes(20));
  EXPECT_TRUE(schedule.is_stretched());
  EXPECT_FALSE(schedule.IsDueByTime(Round(2), kStart + absl::Minutes(19)));
  EXPECT_TRUE(schedule.IsDueByTime(Round(2), kStart + absl::Minutes(20)));
}

TEST(CheckpointScheduleTest, ADiskThatHangsOnceDelaysNoCheckpoint) {
  CheckpointSchedule schedule({.interval = absl::Minutes(5)});
  schedule.Restart(Round(0), kStart);
  schedule.OnBegun(Round(1), kStart);
  for (const int milliseconds : {3, 180'000, 4}) {
    schedule.OnWritten(absl::Milliseconds(milliseconds));
    EXPECT_EQ(schedule.interval(), absl::Seconds(10)) << milliseconds;
  }
  schedule.OnWritten(absl::Minutes(3));
  schedule.OnWritten(absl::Minutes(3));
  EXPECT_EQ(schedule.interval(), absl::Hours(5)) << "the disk stays slow";
}

}  // namespace
}  // namespace lodestar::checkpoints
