// SPDX-License-Identifier: Apache-2.0

#include "common/job/learning_rate_schedule.h"

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace lodestar::job {
namespace {

constexpr double kTolerance = 1e-15;  // a few rounding errors of values near 1e-3

LearningRateSchedule MakeSchedule(ScheduleKind kind) {
  return {.kind = kind, .peak = 1e-3, .minimum = 1e-4, .warmup_rounds = 9, .total_rounds = 109};
}

TEST(LearningRateScheduleTest, WarmsUpLinearlyToThePeak) {
  for (ScheduleKind kind :
       {ScheduleKind::kConstant, ScheduleKind::kCosine, ScheduleKind::kLinear}) {
    const LearningRateSchedule schedule = MakeSchedule(kind);
    EXPECT_NEAR(schedule.At(0), 1e-4, kTolerance);
    EXPECT_NEAR(schedule.At(4), 5e-4, kTolerance);
    EXPECT_NEAR(schedule.At(4.5), 5.5e-4, kTolerance);
    EXPECT_NEAR(schedule.At(9), 1e-3, kTolerance);
  }
}

TEST(LearningRateScheduleTest, WarmsUpStepByStepWithinARound) {
  LearningRateSchedule schedule = MakeSchedule(ScheduleKind::kConstant);
  schedule.warmup_rounds = 1;
  // In a round of four steps the rate rises by the same amount with each step, beginning from 0.
  for (int step = 0; step < 4; ++step) {
    EXPECT_NEAR(schedule.At(step / 4.0, 1 / 4.0), 1e-3 * (step + 1) / 5, kTolerance);
  }
  EXPECT_EQ(schedule.At(1.0, 1 / 4.0), 1e-3);
}

TEST(LearningRateScheduleTest, ConstantStaysAtThePeak) {
  const LearningRateSchedule schedule = MakeSchedule(ScheduleKind::kConstant);
  EXPECT_EQ(schedule.At(50), 1e-3);
  EXPECT_EQ(schedule.At(1000), 1e-3);
}

TEST(LearningRateScheduleTest, DecaysToTheMinimum) {
  const LearningRateSchedule cosine = MakeSchedule(ScheduleKind::kCosine);
  EXPECT_NEAR(cosine.At(59), 5.5e-4, kTolerance);
  EXPECT_NEAR(cosine.At(34), 1e-4 + 9e-4 * 0.85355339059327376, kTolerance);
  const LearningRateSchedule linear = MakeSchedule(ScheduleKind::kLinear);
  EXPECT_NEAR(linear.At(34), 1e-4 + 9e-4 * 0.75, kTolerance);
  for (const LearningRateSchedule& schedule : {cosine, linear}) {
    EXPECT_EQ(schedule.At(109), 1e-4);
    EXPECT_EQ(schedule.At(1e6), 1e-4);
  }
}

TEST(LearningRateScheduleTest, WarmUpOfTheWholeJobDividesByNothing) {
  LearningRateSchedule schedule = MakeSchedule(ScheduleKind::kCosine);
  schedule.warmup_rounds = schedule.total_rounds;
  EXPECT_LT(schedule.At(108), 1e-3);
  EXPECT_EQ(schedule.At(109), 1e-4);
}

TEST(LearningRateScheduleTest, NamesGoBothWays) {
  for (const char* name : {"constant", "cosine", "linear", "program"}) {
    ASSERT_OK_AND_ASSIGN(const ScheduleKind kind, ParseKind<ScheduleKind>(name));
    EXPECT_EQ(NameOf(kind), name);
  }
  EXPECT_THAT(
      ParseKind<ScheduleKind>("step"),
      StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("--lr_schedule=step")));
}

}  // namespace
}  // namespace lodestar::job
