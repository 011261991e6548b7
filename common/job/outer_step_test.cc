// SPDX-License-Identifier: Apache-2.0

#include "common/job/outer_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lodestar::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobSpec Nesterov(double rate, double momentum) {
  JobSpec job;
  job.mode = Mode::kLocalSgd;
  job.outer_optimizer = OuterOptimizerKind::kNesterov;
  job.outer_learning_rate = rate;
  job.outer_momentum = momentum;
  return job;
}

TEST(OuterStepTest, RatioIsTheSumOfAllStepsThatAChangeCauses) {
  EXPECT_DOUBLE_EQ(OuterStepRatio(Nesterov(0.7, 0.5)), 1.4);
  EXPECT_NEAR(OuterStepRatio(Nesterov(0.7, 0.9)), 7.0, 1e-9);
  JobSpec job = Nesterov(0.3, 0.9);
  job.outer_optimizer = OuterOptimizerKind::kSgd;
  EXPECT_EQ(OuterStepRatio(job), 0.3);
  job.outer_optimizer = OuterOptimizerKind::kAverage;
  EXPECT_EQ(OuterStepRatio(job), 1.0);
  for (const OuterOptimizerKind kind : {OuterOptimizerKind::kAdam, OuterOptimizerKind::kEasgd}) {
    job.outer_optimizer = kind;
    EXPECT_EQ(OuterStepRatio(job), 0.0);
  }
  job = Nesterov(0.7, 0.9);
  job.mode = Mode::kSync;
  EXPECT_EQ(OuterStepRatio(job), 0.0);
}

TEST(OuterStepTest, DefaultsAreSafe) {
  EXPECT_FALSE(IsOuterStepLong(Nesterov(kDefaultOuterLearningRate, kDefaultOuterMomentum)));
  EXPECT_FALSE(IsOuterStepLong(Nesterov(0.75, 0.5))) << "just 1.5";
  EXPECT_TRUE(IsOuterStepLong(Nesterov(0.76, 0.5)));
}

TEST(OuterStepTest, DoubtNamesFlagsAndNumbers) {
  EXPECT_THAT(DoubtOfOuterStep(Nesterov(0.7, 0.5)), IsEmpty());
  EXPECT_THAT(DoubtOfOuterStep(Nesterov(0.6, 0.9)),
              AllOf(HasSubstr("--outer_learning_rate=0.6"), HasSubstr("--outer_momentum=0.9"),
                    HasSubstr("= 6"), HasSubstr("1.5"), HasSubstr("--outer_momentum=0.5")));
  JobSpec sgd = Nesterov(2.0, 0.0);
  sgd.outer_optimizer = OuterOptimizerKind::kSgd;
  EXPECT_THAT(DoubtOfOuterStep(sgd), HasSubstr("--outer_learning_rate=2"));
}

}  // namespace
}  // namespace lodestar::job
