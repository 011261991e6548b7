// SPDX-License-Identifier: Apache-2.0

#include "server/shard/delayed_step.h"

#include <gtest/gtest.h>

namespace lodestar::shard {
namespace {

TEST(DelayedStepTest, EqualContributionsAreEqualPartsOfOneStep) {
  DelayedStep step;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 4; ++i) {
      const optimizer::StepPart part = step.Add(/*weight=*/6, /*usual_weight=*/6, /*num_parts=*/4);
      EXPECT_EQ(part,
                (optimizer::StepPart{.is_first = i == 0, .is_last = i == 3, .factor = 0.25f}));
    }
    EXPECT_EQ(step.memory(), DelayedStep::Memory());
  }
}

TEST(DelayedStepTest, OneContributionAloneIsAWholeStep) {
  EXPECT_EQ(DelayedStep().Add(3, 3, 1), optimizer::StepPart());
}

TEST(DelayedStepTest, TheLastMakesTheMeanOfThoseThatCame) {
  DelayedStep step;
  EXPECT_EQ(step.Add(8, 8, 2).factor, 0.5f);
  const optimizer::StepPart last = step.Add(2, 8, 2);
  EXPECT_EQ(last.factor, 0.125f);
  // The planned weight is 2 * 8 = 16. The contributions weigh 8 and 2, so their factors are 8/16 =
  // 0.5 and 2/16 = 0.125. (0.5 + 0.125) * 1.6 is 1.
  EXPECT_EQ(last.rescale, 1.6f);
}

TEST(DelayedStepTest, HowManyPartsThereAreIsDecidedWhenTheFirstComes) {
  DelayedStep step;
  EXPECT_TRUE(step.Add(1, 1, 2).is_first);
  EXPECT_TRUE(step.Add(1, 1, 5).is_last);
  EXPECT_FALSE(step.Add(1, 1, 5).is_last);
}

TEST(DelayedStepTest, GoesOnFromItsMemory) {
  DelayedStep step;
  step.Add(1, 1, 3);
  DelayedStep restored(step.memory());
  EXPECT_FALSE(restored.Add(1, 1, 3).is_first);
  EXPECT_TRUE(restored.Add(1, 1, 3).is_last);
}

}  // namespace
}  // namespace lodestar::shard
