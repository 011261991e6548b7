#include "server/coordinator/checkpoint_schedule.h"

#include <gtest/gtest.h>

namespace lodestar {
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
  EXPECT_FALSE(schedule.IsDueByTime(kStart + absl::Hours(10)));
}

TEST(CheckpointScheduleTest, ByTimeItIsDueAnIntervalAfterTheLastOneBegan) {
  CheckpointSchedule schedule({.interval = absl::Minutes(5)});
  EXPECT_FALSE(schedule.IsDueByTime(kStart)) << "nothing runs yet";
  schedule.Restart(Round(7), kStart);
  EXPECT_FALSE(schedule.IsDueByTime(kStart + absl::Seconds(299)));
  EXPECT_TRUE(schedule.IsDueByTime(kStart + absl::Minutes(5)));
  schedule.OnBegun(Round(9), kStart + absl::Minutes(6));
  EXPECT_FALSE(schedule.IsDueByTime(kStart + absl::Minutes(10)));
  EXPECT_TRUE(schedule.IsDueByTime(kStart + absl::Minutes(11)));
  EXPECT_FALSE(schedule.IsDueByRound(Round(10)));
}

TEST(CheckpointScheduleTest, ASlowDiskStretchesTheIntervalToTheCostAllowed) {
  CheckpointSchedule schedule({.interval = absl::Minutes(5), .max_cost = 0.01});
  schedule.Restart(Round(0), kStart);
  schedule.OnWritten(absl::Seconds(2));
  EXPECT_EQ(schedule.interval(), absl::Minutes(5));
  EXPECT_FALSE(schedule.is_stretched());
  schedule.OnWritten(absl::Seconds(12));
  EXPECT_EQ(schedule.interval(), absl::Minutes(20));
  EXPECT_TRUE(schedule.is_stretched());
  EXPECT_FALSE(schedule.IsDueByTime(kStart + absl::Minutes(19)));
  EXPECT_TRUE(schedule.IsDueByTime(kStart + absl::Minutes(20)));
}

}  // namespace
}  // namespace lodestar
