// SPDX-License-Identifier: Apache-2.0

#include "common/job/job_loss.h"

#include <gtest/gtest.h>

namespace lodestar::job {
namespace {

TEST(JobLossTest, OnlyModelsOverBytesAreToldInBits) {
  EXPECT_EQ(LossUnitOf(*params::ModelPreset("gpt-nano")), LossUnit::kBitsPerByte);
  EXPECT_EQ(LossUnitOf(*params::ModelPreset("gpt2-124m")), LossUnit::kNats);
  EXPECT_EQ(LossUnitOf(*params::ModelPreset("mlp")), LossUnit::kNats);
  EXPECT_EQ(LossUnitOf(*params::ModelPreset("client")), LossUnit::kNats);
  EXPECT_DOUBLE_EQ(BitsFromNats(0.6931471805599453), 1.0);
  EXPECT_EQ(LossText(0.6931471805599453, LossUnit::kBitsPerByte), "1.000 bits/byte (0.6931 nats)");
  EXPECT_EQ(LossText(2.5, LossUnit::kNats), "2.5000 nats");
}

TEST(JobLossTest, ShowsWhatTheNewestRoundHas) {
  JobLoss loss;
  loss.train = 2.0;
  loss.train_round = Round(20);
  EXPECT_EQ(JobLossText(loss, 60, LossUnit::kNats), "round 20/60  loss 2.0000 nats");
  loss.heldout = 3.0;
  loss.heldout_accuracy = 0.1867;
  loss.heldout_round = Round(20);
  EXPECT_EQ(JobLossText(loss, 60, LossUnit::kNats),
            "round 20/60  loss 2.0000 nats  held-out 3.0000 nats  accuracy 18.67 %");
  EXPECT_EQ(JobLossText(loss, 15, LossUnit::kNats),
            "round 20 (--rounds=15)  loss 2.0000 nats  held-out 3.0000 nats  accuracy 18.67 %");
  EXPECT_EQ(JobLossText(loss, 1'000'000'000, LossUnit::kNats),
            "round 20  loss 2.0000 nats  held-out 3.0000 nats  accuracy 18.67 %")
      << "a job without an end of its own";
  // A held-out loss of an earlier round is left out.
  loss.train_round = Round(22);
  EXPECT_EQ(JobLossText(loss, 60, LossUnit::kNats), "round 22/60  loss 2.0000 nats");
  // The final evaluation comes after the last trained round.
  loss.train_round = Round(59);
  loss.heldout_round = Round(60);
  loss.heldout_accuracy.reset();
  EXPECT_EQ(JobLossText(loss, 60, LossUnit::kBitsPerByte),
            "round 60/60  held-out 4.328 bits/byte (3.0000 nats)");
}

}  // namespace
}  // namespace lodestar::job
