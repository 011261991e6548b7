// SPDX-License-Identifier: Apache-2.0

#include "common/job/exchange_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/params/encoding.h"
#include "common/testing/status_matchers.h"

namespace lodestar::job {
namespace {

using ::testing::HasSubstr;

JobSpec Chosen() {
  JobSpec job;
  job.mode = Mode::kLocalSgd;
  job.local_steps = 40;
  job.fragments = 4;
  job.overlap_steps = 5;
  job.merge = MergeKind::kMix;
  job.merge_alpha = 0.25;
  job.overlap_rounds = true;
  job.outer_optimizer = OuterOptimizerKind::kAdam;
  job.outer_learning_rate = 0.3;
  job.outer_momentum = 0.6;
  job.outer_beta2 = 0.91;
  job.outer_epsilon = 0.2;
  job.push_encoding = params::Encoding::TopK(256, 4);
  job.pull_encoding = params::Encoding::kInt4;
  job.topk_divisor = TopKDivisor::kSenders;
  job.feedback_decay = 0.95;
  return job;
}

TEST(ExchangeSettingsTest, AreThoseOfTheJobThatWasSaved) {
  JobSpec asked;
  asked.seed = 7;
  ASSERT_OK_AND_ASSIGN(const JobSpec job, WithExchangeOf(JobSettings(Chosen()), asked));
  JobSpec expected = Chosen();
  expected.seed = 7;
  EXPECT_EQ(JobSettings(job), JobSettings(expected));
}

TEST(ExchangeSettingsTest, WhatMeansNothingIsNamed) {
  EXPECT_THAT(WithExchangeOf({{"local_steps", "many"}}, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--local_steps=many")));
  // A value that is too large for its type is refused, not cut.
  EXPECT_THAT(WithExchangeOf({{"local_steps", "4294967297"}}, {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--local_steps")));
  EXPECT_OK(WithExchangeOf({{"learning_rate", "?"}}, {}));
}

TEST(ExchangeSettingsTest, WhatIsOpenIsWhatCheckpointsKeepOfAChoice) {
  JobSpec asked;
  asked.seed = 7;
  ASSERT_OK_AND_ASSIGN(const JobSpec saved, WithExchangeOf(JobSettings(Chosen()), asked));
  EXPECT_EQ(JobSettings(WithOpenOf(Chosen(), asked, OpenSettings::All())), JobSettings(saved));
  EXPECT_EQ(JobSettings(WithOpenOf(Chosen(), asked, {})), JobSettings(asked));
  const JobSpec steps = WithOpenOf(Chosen(), asked, {.local_steps = true});
  EXPECT_EQ(steps.local_steps, Chosen().local_steps);
  EXPECT_EQ(steps.mode, asked.mode);
}

TEST(ExchangeSettingsTest, ATrialIsTheSameWhateverIsAsked) {
  JobSpec asked = Chosen();
  asked.quorum = 3;
  asked.fragments = 4;
  asked.overlap_steps = 2;
  asked.outer_optimizer = OuterOptimizerKind::kSgd;
  asked.outer_reduction = OuterReduction::kDirection;
  EXPECT_EQ(JobSettings(TrialOf(asked)), JobSettings(TrialOf({})));
}

TEST(ExchangeSettingsTest, StepsAreCountedInRounds) {
  JobSpec job;
  job.schedule.total_rounds = 2000;
  job.schedule.warmup_rounds = 100;
  job.eval_every = 250;
  EXPECT_EQ(JobSettings(InRounds(job, OpenSettings::All())), JobSettings(job))
      << "a round of sync is a step";
  job.mode = Mode::kLocalSgd;
  job.local_steps = 50;
  JobSpec plain = InRounds(job, OpenSettings::All());
  EXPECT_EQ(plain.schedule.total_rounds, 40);
  EXPECT_EQ(plain.schedule.warmup_rounds, 2);
  EXPECT_EQ(plain.eval_every, 5);
  EXPECT_EQ(JobSettings(InRounds(job, {.push_encoding = true})), JobSettings(job))
      << "how long a round is was known";
  job.fragments = 5;
  plain = InRounds(job, OpenSettings::All());
  EXPECT_EQ(plain.schedule.total_rounds, 201) << "one more takes what the last one has made";
  EXPECT_EQ(plain.schedule.warmup_rounds, 10);
  job.local_steps = 500;
  job.eval_every = 1;
  job.schedule.total_rounds = 10;
  plain = InRounds(job, OpenSettings::All());
  EXPECT_EQ(plain.schedule.total_rounds, 2);
  EXPECT_EQ(plain.schedule.warmup_rounds, 1);
  EXPECT_EQ(plain.eval_every, 1);
}

}  // namespace
}  // namespace lodestar::job
