// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/model/exchange_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/job/exchange_settings.h"
#include "common/params/model_spec.h"
#include "common/plan/exchange_choice.h"
#include "common/plan/exchange_forecast.h"
#include "common/plan/exchange_sizes.h"
#include "common/testing/status_matchers.h"

namespace lodestar::model {
namespace {

constexpr double kMegabit = 1e6 / 8;

job::JobSpec Asked() {
  job::JobSpec job;
  job.model = *params::ModelPreset("gpt2-124m");
  job.batch_size = 8;
  job.min_workers = 2;
  job.schedule.total_rounds = 20'000;
  return job;
}

messages::RoundReport ReportOf(absl::Duration compute) {
  messages::RoundReport report;
  report.num_samples = 8;
  report.compute = compute;
  return report;
}

class ExchangeTuningTest : public testing::Test {
 protected:
  void Measure(WorkerId worker, absl::Duration step, const messages::PathFacts& path) {
    for (int round = 0; round < ExchangeTuning::kTrialRounds; ++round) {
      tuning_.OnReport(worker, ReportOf(10 * step), /*local_steps=*/10);
    }
    tuning_.OnHeartbeat(worker, path);
  }

  ExchangeTuning tuning_;
};

TEST_F(ExchangeTuningTest, WaitsForEnoughRoundsAndAHeartbeatAfterThem) {
  tuning_.Begin();
  const WorkerId a(1), b(2);
  tuning_.OnReport(a, ReportOf(absl::Seconds(1)), 10);
  tuning_.OnHeartbeat(a, {});
  EXPECT_FALSE(tuning_.HasMeasured(a)) << "one round";
  tuning_.OnReport(a, ReportOf(absl::Seconds(1)), 10);
  tuning_.OnReport(a, ReportOf(absl::Seconds(1)), 10);
  EXPECT_FALSE(tuning_.HasMeasured(a)) << "no heartbeat since";
  tuning_.OnHeartbeat(a, {});
  EXPECT_TRUE(tuning_.HasMeasured(a));
  EXPECT_FALSE(tuning_.HasMeasured(b));
  tuning_.OnEnded(a);
  EXPECT_FALSE(tuning_.HasMeasured(a));
}

TEST_F(ExchangeTuningTest, FactsAreThoseOfTheSlowest) {
  tuning_.Begin();
  Measure(WorkerId(1), absl::Milliseconds(20),
          {.up_bytes_per_second = 12e6, .round_trip = absl::Milliseconds(50)});
  Measure(WorkerId(2), absl::Milliseconds(10),
          {.up_bytes_per_second = 9e6, .round_trip = absl::Milliseconds(80)});
  // The first round of worker 2 includes compiling, and its last round is held up.
  tuning_.OnReport(WorkerId(2), ReportOf(absl::Seconds(9)), 10);
  job::JobSpec asked = Asked();
  ASSERT_OK_AND_ASSIGN(const plan::ExchangeFacts facts,
                       tuning_.Facts(asked, *params::BuildLayout(asked.model), 1));
  EXPECT_EQ(facts.num_workers, 2);
  EXPECT_EQ(facts.step, absl::Milliseconds(20));
  EXPECT_DOUBLE_EQ(facts.path.worker_up, 9e6);
  EXPECT_EQ(facts.path.worker_down, plan::NetworkPath::kNoLimit)
      << "shared memory, or too little moved";
  EXPECT_EQ(facts.path.round_trip, absl::Milliseconds(80));
}

TEST_F(ExchangeTuningTest, ChoosesWhatTheFormulaSays) {
  tuning_.Begin();
  const messages::PathFacts path = {.up_bytes_per_second = 100 * kMegabit,
                                    .down_bytes_per_second = 100 * kMegabit,
                                    .round_trip = absl::Milliseconds(50)};
  for (int worker = 1; worker <= 2; ++worker) {
    Measure(WorkerId(worker), absl::Milliseconds(300), path);
  }
  const job::JobSpec asked = Asked();
  const params::Layout layout = *params::BuildLayout(asked.model);
  ASSERT_OK_AND_ASSIGN(const ExchangeTuning::Choice choice,
                       tuning_.Choose(asked, job::OpenSettings::All(), layout, 1));
  ASSERT_OK_AND_ASSIGN(const plan::ExchangeChoice all,
                       plan::ChooseExchange(asked, layout, 1, *tuning_.Facts(asked, layout, 1),
                                            {.loss_percent = 1.5,
                                             .total_steps = 20'000,
                                             .prefers_sync = true,
                                             .modes = job::ModesToChooseFrom()}));
  const plan::ExchangeOption& option = all.options[all.chosen];
  EXPECT_EQ(job::JobSettings(choice.job),
            job::JobSettings(job::InRounds(option.job, job::OpenSettings::All())));
  EXPECT_EQ(choice.job.mode, job::Mode::kLocalSgd);
  EXPECT_TRUE(option.has_spare);
  EXPECT_LT(choice.job.schedule.total_rounds, 20'000);
  EXPECT_EQ(choice.option.name, option.name);
  EXPECT_EQ(choice.facts.step, absl::Milliseconds(300));
  EXPECT_EQ(choice.facts.path.worker_up, 100 * kMegabit);
  EXPECT_EQ(choice.facts.path.round_trip, absl::Milliseconds(50));
}

// Keeps the settings that the operator has given, and chooses the others so that the job is valid.
TEST_F(ExchangeTuningTest, APartOfTheSettingsIsChosenBesideTheOthers) {
  tuning_.Begin();
  for (int worker = 1; worker <= 2; ++worker) {
    Measure(WorkerId(worker), absl::Milliseconds(300),
            {.up_bytes_per_second = 100 * kMegabit,
             .down_bytes_per_second = 100 * kMegabit,
             .round_trip = absl::Milliseconds(50)});
  }
  job::JobSpec asked = Asked();
  const params::Layout layout = *params::BuildLayout(asked.model);
  asked.mode = job::Mode::kLocalSgd;
  asked.outer_optimizer = job::OuterOptimizerKind::kAverage;
  ASSERT_OK_AND_ASSIGN(ExchangeTuning::Choice choice,
                       tuning_.Choose(asked, {.local_steps = true, .overlap = true}, layout, 1));
  EXPECT_OK(job::ValidateJobSpec(choice.job));
  EXPECT_FALSE(choice.job.overlap_rounds) << "not with an average";
  EXPECT_EQ(choice.job.outer_optimizer, job::OuterOptimizerKind::kAverage);
  EXPECT_NEAR(choice.job.schedule.total_rounds, 20'000.0 / choice.job.local_steps, 2);
  // If the operator gives the number of local steps, the number of rounds stays as it is.
  asked.local_steps = 20;
  ASSERT_OK_AND_ASSIGN(choice, tuning_.Choose(asked, {.push_encoding = true}, layout, 1));
  EXPECT_EQ(choice.job.schedule.total_rounds, asked.schedule.total_rounds);
  EXPECT_EQ(choice.job.local_steps, 20);
}

TEST_F(ExchangeTuningTest, OverAFastNetworkTheJobIsSynchronous) {
  tuning_.Begin();
  Measure(WorkerId(1), absl::Milliseconds(300), {.round_trip = absl::Microseconds(50)});
  job::JobSpec asked = Asked();
  asked.model = *params::ModelPreset("gpt-nano");
  ASSERT_OK_AND_ASSIGN(
      const ExchangeTuning::Choice choice,
      tuning_.Choose(asked, job::OpenSettings::All(), *params::BuildLayout(asked.model), 1));
  EXPECT_EQ(choice.job.mode, job::Mode::kSync);
  EXPECT_EQ(choice.job.schedule.total_rounds, 20'000);
}

// A step takes so little time that processors need more than 5 % of the time for exchanges.
TEST_F(ExchangeTuningTest, OnOneMachineTheJobIsSynchronous) {
  tuning_.Begin();
  for (int worker = 1; worker <= 2; ++worker) {
    Measure(WorkerId(worker), absl::Milliseconds(14), {.round_trip = absl::Microseconds(50)});
  }
  job::JobSpec asked = Asked();
  asked.model = *params::ModelPreset("gpt-nano");
  ASSERT_OK_AND_ASSIGN(
      const ExchangeTuning::Choice choice,
      tuning_.Choose(asked, job::OpenSettings::All(), *params::BuildLayout(asked.model), 1));
  EXPECT_EQ(choice.job.mode, job::Mode::kSync) << choice.reason;
}

TEST_F(ExchangeTuningTest, KeepsGivenLocalStepsWhoseLossExceedsTheLimit) {
  tuning_.Begin();
  for (int worker = 1; worker <= 2; ++worker) {
    Measure(WorkerId(worker), absl::Milliseconds(14), {.round_trip = absl::Microseconds(50)});
  }
  job::JobSpec asked = Asked();
  asked.model = *params::ModelPreset("gpt-nano");
  asked.mode = job::Mode::kLocalSgd;
  asked.outer_optimizer = job::OuterOptimizerKind::kAverage;
  asked.local_steps = 20;
  asked.schedule.total_rounds = 50;
  ASSERT_OK_AND_ASSIGN(
      const ExchangeTuning::Choice choice,
      tuning_.Choose(asked, {.push_encoding = true}, *params::BuildLayout(asked.model), 1));
  ASSERT_TRUE(choice.option.loss.percent.has_value());
  EXPECT_GT(*choice.option.loss.percent, plan::kMostLossPercent);
}

TEST_F(ExchangeTuningTest, WhateverAWorkerTellsTheJobMayRun) {
  job::JobSpec asked = Asked();
  asked.model = *params::ModelPreset("gpt-nano");
  const params::Layout layout = *params::BuildLayout(asked.model);
  const double rates[] = {0.0, 1e-300, 1.0, 1e300};
  for (const double up : rates) {
    for (const double down : rates) {
      for (const absl::Duration step :
           {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Hours(24 * 365)}) {
        tuning_.Begin();
        Measure(WorkerId(1), absl::Milliseconds(20), {});
        Measure(WorkerId(2), step,
                {.up_bytes_per_second = up,
                 .down_bytes_per_second = down,
                 .round_trip = absl::Hours(24)});
        ASSERT_OK_AND_ASSIGN(const ExchangeTuning::Choice choice,
                             tuning_.Choose(asked, job::OpenSettings::All(), layout, 1));
        EXPECT_OK(job::ValidateJobSpec(choice.job)) << choice.reason;
      }
    }
  }
}

// How long exchanges took in the trial shows whether workers share a link.
TEST_F(ExchangeTuningTest, KnowsWhetherWorkersShareALink) {
  job::JobSpec asked = Asked();
  asked.model = *params::ModelPreset("gpt-nano");
  const params::Layout layout = *params::BuildLayout(asked.model);
  const double rate = 10 * kMegabit;
  for (const bool shared : {false, true}) {
    plan::ExchangeFacts truth;
    truth.num_workers = 2;
    truth.step = absl::Milliseconds(50);
    truth.path = {.worker_up = rate, .worker_down = rate, .round_trip = absl::Milliseconds(50)};
    if (shared) truth.path.server_up = truth.path.server_down = rate;
    const job::JobSpec trial = job::TrialOf(asked);
    const absl::Duration exchange =
        plan::ForecastExchange(trial, *plan::PlanExchangeSizes(trial, layout, 1), truth).exposed();
    tuning_.Begin();
    for (int worker = 1; worker <= 2; ++worker) {
      for (int round = 0; round < ExchangeTuning::kTrialRounds; ++round) {
        messages::RoundReport report = ReportOf(5 * truth.step);
        report.communication = 0.9 * exchange;
        report.wait = 0.1 * exchange;
        if (round == 0) report.communication *= 10;  // the first weights are sent whole
        tuning_.OnReport(WorkerId(worker), report, /*local_steps=*/5);
      }
      tuning_.OnHeartbeat(WorkerId(worker), {.up_bytes_per_second = rate,
                                             .down_bytes_per_second = rate,
                                             .round_trip = absl::Milliseconds(50)});
    }
    ASSERT_OK_AND_ASSIGN(const plan::ExchangeFacts facts, tuning_.Facts(asked, layout, 1));
    EXPECT_EQ(facts.path.server_down, shared ? rate : plan::NetworkPath::kNoLimit);
    EXPECT_EQ(facts.path.server_up, shared ? rate : plan::NetworkPath::kNoLimit);
  }
}

TEST_F(ExchangeTuningTest, TakesWhatTheJobAllows) {
  tuning_.Begin();
  // Only top-k would be fast enough, but top-k is not allowed with a robust mean.
  Measure(WorkerId(1), absl::Milliseconds(300),
          {.up_bytes_per_second = 0.1 * kMegabit,
           .down_bytes_per_second = 100 * kMegabit,
           .round_trip = absl::Milliseconds(1)});
  job::JobSpec asked = Asked();
  asked.robust_mean = *job::ParseRobustMean("median");
  const params::Layout layout = *params::BuildLayout(asked.model);
  ASSERT_OK_AND_ASSIGN(const ExchangeTuning::Choice choice,
                       tuning_.Choose(asked, job::OpenSettings::All(), layout, 1));
  EXPECT_FALSE(choice.job.push_encoding.is_topk()) << choice.reason;
  EXPECT_OK(job::ValidateJobSpec(choice.job));
}

TEST_F(ExchangeTuningTest, MeasuresOnlyDuringTheTrial) {
  Measure(WorkerId(1), absl::Milliseconds(20), {});
  EXPECT_FALSE(tuning_.HasMeasured(WorkerId(1)));
  tuning_.Begin();
  Measure(WorkerId(1), absl::Milliseconds(20), {});
  EXPECT_TRUE(tuning_.HasMeasured(WorkerId(1)));
  tuning_.Begin();
  EXPECT_FALSE(tuning_.HasMeasured(WorkerId(1))) << "it begins anew";
  tuning_.End({.reason = "chosen"});
  EXPECT_FALSE(tuning_.is_measuring());
  EXPECT_EQ(tuning_.origin(), ExchangeOrigin::kChoice);
  EXPECT_EQ(tuning_.choice().reason, "chosen");
}

TEST(TrialTest, IsAJobThatMayRun) {
  const job::JobSpec trial = job::TrialOf(Asked());
  EXPECT_OK(job::ValidateJobSpec(trial));
  EXPECT_EQ(trial.mode, job::Mode::kLocalSgd);
}

}  // namespace
}  // namespace lodestar::model
