// SPDX-License-Identifier: Apache-2.0

#include "common/job/proposed_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "common/testing/status_matchers.h"

namespace lodestar::job {
namespace {

using ::testing::HasSubstr;

JobSpec ClientJob() {
  JobSpec job;
  job.model = {"client", params::ClientModelSpec{}};
  job.batch_size = 12;
  return job;
}

// Returns a proposal from pairs such as {"optimizer", "sgd"}, as a program names them.
ProposedSettings Proposed(const std::vector<JobSetting>& settings) {
  ProposedSettings proposed;
  for (const JobSetting& setting : settings) {
    EXPECT_OK(SetProposed(setting.flag, setting.value, proposed));
  }
  return proposed;
}

const std::vector<JobSetting> kAll = {{"optimizer", "momentum"}, {"learning_rate", "0.5"},
                                      {"weight_decay", "0.25"},  {"momentum", "0.75"},
                                      {"beta1", "0.5"},          {"beta2", "0.625"},
                                      {"epsilon", "0.125"},      {"clip_norm", "2"},
                                      {"batch_size", "7"},       {"lr_schedule", "program"}};

TEST(ProposedSettingsTest, WhatNobodyHasGivenIsTaken) {
  const SettledJob settled = Settle(ClientJob(), {}, Proposed(kAll));
  EXPECT_EQ(settled.job.optimizer, (OptimizerSettings{.kind = OptimizerKind::kMomentum,
                                                      .momentum = 0.75,
                                                      .beta1 = 0.5,
                                                      .beta2 = 0.625,
                                                      .epsilon = 0.125,
                                                      .weight_decay = 0.25}));
  EXPECT_EQ(settled.job.schedule.peak, 0.5);
  EXPECT_EQ(settled.job.schedule.kind, ScheduleKind::kProgram);
  EXPECT_EQ(settled.job.clip_norm, 2.0);
  EXPECT_EQ(settled.job.batch_size, 7);
  EXPECT_EQ(settled.taken.size(), kAll.size());
  EXPECT_EQ(SettingsText(settled.not_taken), "nothing");
  EXPECT_EQ(SettingsText(Settle(ClientJob(), {}, Proposed({{"clip_norm", "2"}})).taken),
            "clip_norm=2");
  const SettledJob nothing = Settle(ClientJob(), {}, {});
  EXPECT_EQ(JobSettings(nothing.job), JobSettings(ClientJob()));
}

TEST(ProposedSettingsTest, TheOperatorDecidesWhatItGives) {
  const SettledJob settled =
      Settle(ClientJob(), {"learning_rate", "batch_size", "momentum"}, Proposed(kAll));
  EXPECT_EQ(settled.job.optimizer.kind, OptimizerKind::kMomentum);
  EXPECT_EQ(settled.job.optimizer.momentum, ClientJob().optimizer.momentum);
  EXPECT_EQ(settled.job.schedule.peak, ClientJob().schedule.peak);
  EXPECT_EQ(settled.job.batch_size, 12);
  EXPECT_EQ(SettingsText(settled.not_taken),
            "batch_size=7, learning_rate=0.5, lr_schedule=program, momentum=0.75");
}

TEST(ProposedSettingsTest, WhoGivesTheOptimizerDecidesAllThatBelongsToIt) {
  const SettledJob settled = Settle(ClientJob(), {"optimizer"}, Proposed(kAll));
  EXPECT_EQ(settled.job.optimizer, ClientJob().optimizer);
  EXPECT_EQ(SettingsText(settled.taken),
            "batch_size=7, learning_rate=0.5, lr_schedule=program, clip_norm=2");
}

TEST(ProposedSettingsTest, ScheduleOfTheJobHoldsIfAFlagOfItIsGivenOrTheJobTakesNoOther) {
  const ProposedSettings proposed = Proposed({{"lr_schedule", "program"}});
  for (const char* flag : {"learning_rate", "min_learning_rate", "lr_schedule", "warmup_rounds"}) {
    const SettledJob settled = Settle(ClientJob(), {flag}, proposed);
    EXPECT_EQ(settled.job.schedule.kind, ScheduleKind::kConstant) << flag;
    EXPECT_EQ(SettingsText(settled.not_taken), "lr_schedule=program") << flag;
  }
  JobSpec job = ClientJob();
  for (const Mode mode : {Mode::kSync, Mode::kLocalSgd, Mode::kAsyncLocalSgd}) {
    job.mode = mode;
    EXPECT_EQ(Settle(job, {}, proposed).job.schedule.kind, ScheduleKind::kProgram);
  }
  job.mode = Mode::kAsync;
  EXPECT_EQ(Settle(job, {}, proposed).job.schedule.kind, ScheduleKind::kConstant);
}

TEST(ProposedSettingsTest, ClipNormIsTakenOnlyIfServersMakeStepsFromGradients) {
  const ProposedSettings proposed = Proposed({{"clip_norm", "2"}});
  JobSpec job = ClientJob();
  for (const Mode mode : {Mode::kSync, Mode::kAsync}) {
    job.mode = mode;
    EXPECT_EQ(Settle(job, {}, proposed).job.clip_norm, 2.0);
    EXPECT_EQ(SettingsText(Settle(job, {"clip_norm"}, proposed).not_taken), "clip_norm=2");
  }
  for (const Mode mode : {Mode::kLocalSgd, Mode::kAsyncLocalSgd}) {
    job.mode = mode;
    EXPECT_EQ(SettingsText(Settle(job, {}, proposed).not_taken), "clip_norm=2");
    EXPECT_EQ(Settle(job, {}, proposed).job.clip_norm, 0.0);
  }
  job.mode = Mode::kSync;
  job.optimizer.kind = OptimizerKind::kReduce;
  EXPECT_EQ(Settle(job, {"optimizer"}, proposed).job.clip_norm, 0.0);
}

TEST(ProposedSettingsTest, AGlobalBatchSizeIsTheOperatorsBatchSize) {
  JobSpec job = ClientJob();
  job.batch_size = 0;
  job.global_batch_size = 64;
  const SettledJob settled = Settle(job, {}, Proposed({{"batch_size", "7"}}));
  EXPECT_EQ(settled.job.batch_size, 0);
  EXPECT_EQ(SettingsText(settled.not_taken), "batch_size=7");
}

TEST(ProposedSettingsTest, WhatIsNoSettingOrNoValueIsNamed) {
  ProposedSettings proposed;
  const auto refusal = [&](const char* setting, const char* value) {
    const absl::Status refused = SetProposed(setting, value, proposed);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    return std::string(refused.message());
  };
  EXPECT_THAT(refusal("rounds", "7"), HasSubstr("'rounds' is not a setting that a program may"));
  EXPECT_THAT(refusal("rounds", "7"), HasSubstr("optimizer, momentum, beta1, beta2, epsilon, "
                                                "weight_decay, learning_rate, clip_norm, "
                                                "batch_size, lr_schedule"));
  EXPECT_THAT(refusal("optimizer", "lion"), HasSubstr("--optimizer=lion is unknown; allowed: sgd"));
  EXPECT_THAT(refusal("momentum", "much"), HasSubstr("--momentum=much is no number"));
  EXPECT_THAT(refusal("lr_schedule", "cosine"), HasSubstr("--lr_schedule=cosine is no schedule"));
  EXPECT_THAT(refusal("batch_size", "1.5"), HasSubstr("--batch_size=1.5 is no whole number"));
  EXPECT_TRUE(proposed.is_empty());
}

TEST(ProposedSettingsTest, RangesAreThoseOfTheFlags) {
  EXPECT_OK(ValidateProposed(Proposed(kAll)));
  EXPECT_OK(ValidateProposed({}));
  for (const JobSetting& bad : {JobSetting{"momentum", "1"},
                                {"beta1", "-0.5"},
                                {"beta2", "nan"},
                                {"epsilon", "0"},
                                {"weight_decay", "inf"},
                                {"learning_rate", "-1"},
                                {"clip_norm", "-1"},
                                {"batch_size", "0"},
                                {"batch_size", "1048577"}}) {
    EXPECT_THAT(ValidateProposed(Proposed({bad})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--" + bad.flag)));
  }
}

TEST(ProposedSettingsTest, WhatWasSavedIsProposedAgainToTheBit) {
  JobSpec saved = Settle(ClientJob(), {}, Proposed(kAll)).job;
  saved.schedule.peak = 0.1 + 0.2;
  saved.optimizer.epsilon = std::numeric_limits<double>::denorm_min();
  saved.mode = Mode::kAsync;
  const JobSpec again = Settle(ClientJob(), {}, ProposedBySaved(JobSettings(saved))).job;
  EXPECT_EQ(again.optimizer, saved.optimizer);
  EXPECT_EQ(again.schedule.peak, saved.schedule.peak);
  EXPECT_EQ(again.schedule.kind, ScheduleKind::kProgram);
  EXPECT_EQ(again.batch_size, 7);
  EXPECT_EQ(again.mode, Mode::kSync) << "of which programs have no say";
  EXPECT_TRUE(
      ProposedBySaved({{"optimizer", "of a later release"}, {"batch_size", "0"}}).is_empty());
}

}  // namespace
}  // namespace lodestar::job
