// SPDX-License-Identifier: Apache-2.0

#include "server/checkpoint/resume_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/job/job_settings.h"
#include "common/params/model_spec_json.h"
#include "common/testing/status_matchers.h"

namespace lodestar::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<std::string> kStateNames = {"exp_avg", "exp_avg_sq"};

job::JobSpec TestJob() {
  job::JobSpec job;
  job.model = *params::ModelPreset("gpt-nano");
  job.schedule.total_rounds = 2000;
  job.batch_size = 12;
  return job;
}

checkpoints::Manifest WrittenBy(const job::JobSpec& job) {
  checkpoints::Manifest manifest;
  manifest.round = Round(217);
  manifest.model = params::ModelSpecToJson(job.model);
  for (const job::JobSetting& setting : job::JobSettings(job)) {
    manifest.settings[setting.flag] = setting.value;
  }
  manifest.shards.emplace_back().state_names = kStateNames;
  return manifest;
}

constexpr RateAtResume kAtTheCheckpoint = {.place = 217};

std::vector<SettingChange> Compare(const job::JobSpec& asked) {
  return CompareSettings(WrittenBy(TestJob()), asked, kStateNames, kAtTheCheckpoint);
}

std::string RefusalOf(const job::JobSpec& asked, const std::vector<std::string>& state_names) {
  const checkpoints::Manifest manifest = WrittenBy(TestJob());
  return std::string(
      CheckNoneRefused(CompareSettings(manifest, asked, state_names, kAtTheCheckpoint), manifest,
                       "runs/round-217")
          .message());
}

TEST(ResumeSettingsTest, TheSameCommandChangesNothing) {
  EXPECT_THAT(Compare(TestJob()), IsEmpty());
  EXPECT_EQ(SettingsTable({}), "");
  EXPECT_OK(CheckNoneRefused({}, checkpoints::Manifest(), "runs/round-217"));
}

TEST(ResumeSettingsTest, WhatMayChangeIsToldWithItsEffect) {
  job::JobSpec asked = TestJob();
  asked.batch_size = 24;
  asked.schedule.peak = 0.0005;
  asked.schedule.total_rounds = 3000;
  asked.clip_norm = 1.0;
  const std::vector<SettingChange> changes = Compare(asked);
  EXPECT_OK(CheckNoneRefused(changes, WrittenBy(TestJob()), "runs/round-217"));
  EXPECT_EQ(SettingsTable(changes),
            "\n  setting        checkpoint  asked   what happens\n  rounds         2000        "
            "3000    the job ends after that many rounds, counted from its first start\n  "
            "batch_size     12          24      from round 217 on\n  learning_rate  0.001       "
            "0.0005  from round 217 on\n  clip_norm      0           1       from round 217 on\n  "
            "rate           0.001       0.0005  this is the rate of round 217");
  asked.schedule.total_rounds = 217;
  EXPECT_EQ(Compare(asked).front().effect, "no round is left to do");
}

TEST(ResumeSettingsTest, ContradictionsAreRefusedWithWhatToGive) {
  job::JobSpec asked = TestJob();
  asked.seed = 2;
  asked.mode = job::Mode::kAsync;
  asked.batch_size = 24;
  EXPECT_THAT(
      RefusalOf(asked, kStateNames),
      AllOf(HasSubstr("runs/round-217"), HasSubstr("--mode=async contradicts --mode=sync"),
            HasSubstr("--seed=2 contradicts --seed=1"), HasSubstr("give --mode=sync, --seed=1;"),
            HasSubstr("--init_from=runs/round-217"), Not(HasSubstr("batch_size"))));
}

TEST(ResumeSettingsTest, AnotherOptimizerIsRefusedOnlyIfItsStateIsAnother) {
  job::JobSpec asked = TestJob();
  asked.optimizer.kind = job::OptimizerKind::kSgd;
  EXPECT_THAT(RefusalOf(asked, {}), HasSubstr("--optimizer=sgd contradicts --optimizer=adamw"));
  EXPECT_EQ(RefusalOf(asked, kStateNames), "");
}

TEST(ResumeSettingsTest, AMeanGradientIsNoWeightsForAnotherOptimizer) {
  job::JobSpec steps = TestJob();
  steps.model = {"client", params::ClientModelSpec{}};
  steps.optimizer.kind = job::OptimizerKind::kSgd;
  job::JobSpec reduces = steps;
  reduces.optimizer.kind = job::OptimizerKind::kReduce;
  for (const auto& [saved, asked] : {std::pair(steps, reduces), std::pair(reduces, steps)}) {
    const auto changes = CompareSettings(WrittenBy(saved), asked, kStateNames, kAtTheCheckpoint);
    ASSERT_EQ(changes.size(), 1);
    EXPECT_TRUE(changes[0].is_refused);
    EXPECT_THAT(changes[0].effect, HasSubstr("a gradient in place of weights"));
  }
}

TEST(ResumeSettingsTest, AnotherModelIsRefusedByTheFieldThatDiffers) {
  job::JobSpec asked = TestJob();
  params::GptSpec& gpt = std::get<params::GptSpec>(asked.model.architecture);
  gpt.num_heads = 2;  // all tensors keep their shapes
  EXPECT_THAT(RefusalOf(asked, kStateNames),
              AllOf(HasSubstr("gpt.num_heads is 4, but the flags say 2"),
                    HasSubstr("To continue, give --model=gpt-nano;")));
  gpt.num_heads = 4;
  gpt.dropout = 0.1;
  asked.model.name = "another name";
  const std::vector<SettingChange> changes = Compare(asked);
  ASSERT_EQ(changes.size(), 1);
  EXPECT_EQ(changes[0].flag, "dropout");
  EXPECT_FALSE(changes[0].is_refused);
  asked.model = *params::ModelPreset("mlp");
  EXPECT_THAT(
      RefusalOf(asked, kStateNames),
      AllOf(HasSubstr("model 'mlp' contradicts 'gpt-nano'"),
            HasSubstr("kind is \"gpt\", but the flags say \"mlp\""), Not(HasSubstr("--init_from"))))
      << "its weights fit no other model";
}

TEST(ResumeSettingsTest, AModelThatIsNoPresetIsGivenAsTheFileToWrite) {
  job::JobSpec own = TestJob();
  own.model = {"own", params::MlpSpec{{784, 10}}};
  const checkpoints::Manifest manifest = WrittenBy(own);
  const auto changes = CompareSettings(manifest, TestJob(), kStateNames, kAtTheCheckpoint);
  ASSERT_EQ(changes.size(), 1);
  EXPECT_EQ(changes[0].saved, "own");
  EXPECT_EQ(changes[0].asked, "gpt-nano");
  EXPECT_THAT(std::string(CheckNoneRefused(changes, manifest, "runs/round-217").message()),
              HasSubstr("--model=FILE with a file that says: name: \"own\" mlp { widths: "
                        "[784,10] }; for a new job"));
  own.model.name = "gpt-nano";  // the name of a preset does not make the model a preset
  EXPECT_THAT(std::string(CheckNoneRefused(changes, WrittenBy(own), "r").message()),
              HasSubstr("--model=FILE"));
}

TEST(ResumeSettingsTest, WhatAnOlderReleaseWroteIsComparedAsFarAsItGoes) {
  checkpoints::Manifest manifest = WrittenBy(TestJob());
  manifest.settings = {{"seed", 1}, {"mode", "sync"}, {"batch_size", 16}, {"error_feedback", true}};
  const auto changes = CompareSettings(manifest, TestJob(), kStateNames, kAtTheCheckpoint);
  ASSERT_EQ(changes.size(), 1);
  EXPECT_EQ(changes[0].flag, "batch_size");
  EXPECT_EQ(changes[0].saved, "16");
}

// Fixture with a run of 217 rounds with a cosine schedule, which is extended to 434 rounds.
class ExtendedRunTest : public testing::Test {
 protected:
  ExtendedRunTest() {
    saved_.schedule = {
        .kind = job::ScheduleKind::kCosine, .peak = 1e-2, .minimum = 1e-4, .total_rounds = 217};
    asked_ = saved_;
    asked_.schedule.total_rounds = 434;
  }
  std::vector<SettingChange> Changes(const RateAtResume& rate) const {
    return CompareSettings(WrittenBy(saved_), asked_, kStateNames, rate);
  }
  absl::Status Check(const RateAtResume& rate = kAtTheCheckpoint) const {
    return CheckNoneRefused(Changes(rate), WrittenBy(saved_), "runs/round-217");
  }

  job::JobSpec saved_ = TestJob();
  job::JobSpec asked_;
};

TEST_F(ExtendedRunTest, RateBeforeAndAfterAreInTheTable) {
  const std::vector<SettingChange> changes = Changes({.place = 217, .scale = 0.5});
  ASSERT_EQ(changes.size(), 2);
  EXPECT_EQ(changes[1].flag, "rate");
  EXPECT_EQ(changes[1].saved, "5e-05");
  EXPECT_EQ(changes[1].asked, "0.002525");
  EXPECT_THAT(changes[1].effect, AllOf(HasSubstr("round 217"), HasSubstr("50.5")));
}

TEST_F(ExtendedRunTest, RateThatRisesByMoreThanATenthAsksForTheFlag) {
  EXPECT_THAT(Check(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("0.0001"), HasSubstr("0.00505"),
                             HasSubstr("--accept_higher_rate"), HasSubstr("--rounds=217"))));
  EXPECT_OK(Check({.place = 217, .may_rise = true}));
}

TEST_F(ExtendedRunTest, ARateThatIsConstantIsKeptWithMoreRounds) {
  saved_.schedule.kind = asked_.schedule.kind = job::ScheduleKind::kConstant;
  asked_.schedule.peak = 2e-2;
  EXPECT_THAT(Check(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("--learning_rate=0.01"), Not(HasSubstr("--rounds")))));
}

TEST_F(ExtendedRunTest, RateMayRiseByATenthAndFall) {
  EXPECT_OK(Check({.place = 20}));
  std::swap(saved_, asked_);
  EXPECT_OK(Check({.place = 100}));
}

TEST_F(ExtendedRunTest, RateThatWasZeroMayNotRise) {
  saved_.schedule.minimum = asked_.schedule.minimum = 0;
  EXPECT_THAT(Check(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--accept_higher_rate")));
}

TEST_F(ExtendedRunTest, RateOfStepsThatAreNotMadeSaysNothing) {
  asked_ = saved_;
  asked_.schedule.peak = 1;
  EXPECT_OK(Check());
  asked_.schedule.total_rounds = 434;
  asked_.model = {"client", params::ClientModelSpec{}};
  asked_.optimizer.kind = job::OptimizerKind::kReduce;
  EXPECT_NE(Changes(kAtTheCheckpoint).back().flag, "rate");
}

// Fixture with a run whose rate of 1e-3 an operator has set to 1e-4, after a rollback has halved
// it.
class OrderedRateTest : public testing::Test {
 protected:
  OrderedRateTest() {
    saved_.schedule = {.kind = job::ScheduleKind::kConstant, .peak = 1e-3, .total_rounds = 500};
    asked_ = saved_;
  }
  std::vector<SettingChange> Changes() const {
    return CompareSettings(WrittenBy(saved_), asked_, kStateNames, rate_);
  }
  std::string Text() const { return DroppedRateText(Changes(), WrittenBy(saved_), asked_, rate_); }

  job::JobSpec saved_ = TestJob();
  job::JobSpec asked_;
  RateAtResume rate_ = {.place = 217, .scale = 0.1, .scale_by_operators = 0.2, .is_given = true};
};

TEST_F(OrderedRateTest, OtherRateThatIsGivenReplacesTheOrderAndKeepsRollbacks) {
  asked_.schedule.peak = 2e-4;
  const std::vector<SettingChange> changes = Changes();
  EXPECT_TRUE(DropsOrderedRate(changes, rate_));
  EXPECT_DOUBLE_EQ(ScaleAfter(changes, rate_), 0.5);
  EXPECT_EQ(changes.size(), 1) << "the rate stays 1e-4, so no row names it";
  EXPECT_THAT(Text(), AllOf(HasSubstr("--learning_rate=0.0002 "), HasSubstr("(0.0001)"),
                            HasSubstr("round 217 is 0.0001.")));
}

TEST_F(OrderedRateTest, RateThatIsNotGivenOrStaysKeepsTheOrder) {
  EXPECT_DOUBLE_EQ(ScaleAfter(Changes(), rate_), 0.1);
  EXPECT_EQ(Text(), "");
  asked_.schedule.peak = 2e-4;
  rate_.is_given = false;
  EXPECT_DOUBLE_EQ(ScaleAfter(Changes(), rate_), 0.1);
  EXPECT_EQ(Changes().back().asked, "2e-05");
}

TEST_F(OrderedRateTest, RateWithoutAnOrderKeepsTheFactorOfRollbacks) {
  asked_.schedule.peak = 2e-4;
  rate_.scale_by_operators = 1 + 1e-15;
  EXPECT_FALSE(DropsOrderedRate(Changes(), rate_));
  EXPECT_DOUBLE_EQ(ScaleAfter(Changes(), rate_), 0.1);
}

TEST_F(OrderedRateTest, RateAboveTheOrderedOneAsksForTheFlag) {
  asked_.schedule.peak = 5e-4;
  EXPECT_THAT(CheckNoneRefused(Changes(), WrittenBy(saved_), "runs/round-217"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--accept_higher_rate")));
}

TEST_F(ExtendedRunTest, RatesThatLookEqualAreNotInTheTable) {
  asked_ = saved_;
  asked_.schedule.peak *= 1 + 1e-9;
  for (const SettingChange& change : Changes({.place = 10})) EXPECT_NE(change.saved, change.asked);
}

TEST_F(ExtendedRunTest, WarmUpIsNoRise) {
  saved_.schedule.warmup_rounds = 1000;
  asked_ = saved_;
  asked_.clip_norm = 1;
  EXPECT_OK(Check());
}

}  // namespace
}  // namespace lodestar::checkpoint
