// SPDX-License-Identifier: Apache-2.0

// Tests of a job that chooses its exchange settings itself. It runs a trial, chooses, and starts
// over with the choice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/exchange_settings.h"
#include "common/testing/status_matchers.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/model/exchange_tuning.h"
#include "server/coordinator/testing/coordinator_fixture.h"
#include "server/coordinator/verdict_words.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns the config of a job of 4000 steps with 6 samples each.
Coordinator::Config AutoConfig() {
  Coordinator::Config config = TestConfig(/*min_workers=*/2);
  config.job.schedule.total_rounds = 4000;
  config.job.eval_every = 400;
  config.open_settings = job::OpenSettings::All();
  config.checkpoint_dir = "ckpt";
  return config;
}

// Runs the trial. A step takes 10 ms. The path from the workers to the servers has 10 Mbit/s and a
// round trip of 100 ms.
void RunTrial(CoordinatorHarness& cluster, const std::vector<TestWorker>& workers) {
  for (int round = 0; round < model::ExchangeTuning::kTrialRounds; ++round) {
    std::vector<messages::RoundReport> reports;
    // A round is opened for the members that have asked for work.
    for (const TestWorker& worker : workers) cluster.Ask(worker);
    for (const TestWorker& worker : workers) {
      const GrantAnswer answer = cluster.Ask(worker);
      ASSERT_TRUE(answer.grant.has_value());
      reports.push_back(CoordinatorHarness::ReportOf(*answer.grant));
      reports.back().compute = answer.grant->local_steps * absl::Milliseconds(10);
    }
    for (size_t i = 0; i < workers.size(); ++i) cluster.Ask(workers[i], reports[i]);
  }
  for (const TestWorker& worker : workers) {
    messages::HeartbeatCall call;
    call.life = worker.life;
    call.path = {.up_bytes_per_second = 1.25e6,
                 .down_bytes_per_second = 1.25e6,
                 .round_trip = absl::Milliseconds(100)};
    ASSERT_OK(cluster.coordinator().Heartbeat(call, cluster.now()));
  }
}

TEST(ExchangeChoiceTextTest, NamesSettingsMeasurementsAndMissOfTheLossLimit) {
  model::ExchangeTuning::Choice choice;
  choice.facts.step = absl::Milliseconds(300);
  choice.facts.path.worker_up = 12.5e6;
  choice.option.name = "DiLoCo, int8";
  choice.option.job = AutoConfig().job;
  choice.option.loss.percent = plan::kMostLossPercent;
  choice.reason = "the reason";
  EXPECT_THAT(ExchangeChoiceText(choice),
              AllOf(HasSubstr("DiLoCo, int8"), HasSubstr("--mode="), HasSubstr("300 ms"),
                    HasSubstr("100 Mbit/s"), HasSubstr("the reason"), Not(HasSubstr("loss"))));
  choice.option.loss.percent = plan::kMostLossPercent + 0.7;
  EXPECT_THAT(ExchangeChoiceText(choice), HasSubstr("0.7 percentage points"));
  choice.option.loss.percent.reset();
  EXPECT_THAT(ExchangeChoiceText(choice), HasSubstr("loss is not known"));
}

TEST(CoordinatorTuningTest, AJobStartsOverWithWhatItsTrialSays) {
  CoordinatorHarness cluster(AutoConfig());
  cluster.Start();
  TestWorker a = cluster.Add("a");
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).exchange_choice,
              HasSubstr("waits for 1 more worker to measure (--min_workers=2)"));
  TestWorker b = cluster.Add("b");
  EXPECT_THAT(
      cluster.coordinator().Snapshot(cluster.now()).exchange_choice,
      AllOf(StartsWith("measures the time of steps and the network"), Not(HasSubstr("waits for"))));
  EXPECT_THAT(cluster.coordinator().RequestCheckpoint(cluster.now()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is measuring")));
  ASSERT_NO_FATAL_FAILURE(RunTrial(cluster, {a, b}));
  EXPECT_FALSE(cluster.coordinator().Memory().has_value()) << "a journal does not keep a trial";
  EXPECT_FALSE(cluster.coordinator().Snapshot(cluster.now()).eta.has_value())
      << "a trial has no length of its own";
  // The servers do not start over before the open round is complete.
  EXPECT_EQ(cluster.store().restores, 1);
  std::vector<messages::RoundReport> reports;
  for (const TestWorker& worker : {a, b}) {
    reports.push_back(CoordinatorHarness::ReportOf(*cluster.Ask(worker).grant));
  }
  cluster.Ask(a, reports[0]);
  cluster.coordinator()
      .RequestGrant(b.life, reports[1], cluster.now())
      .IgnoreError();  // fails, because the servers start over
  EXPECT_EQ(cluster.store().restores, 2);
  EXPECT_THAT(cluster.observer().events, Contains(StartsWith("exchange chosen: ")));
  EXPECT_TRUE(cluster.store().published.empty()) << "a trial is not kept";

  cluster.coordinator().OnRestoreChosen(
      RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 2000}, cluster.now());
  cluster.LoadAll();
  ASSERT_OK_AND_ASSIGN(const messages::Registration again, cluster.Register(a));
  EXPECT_EQ(again.job.mode, job::Mode::kLocalSgd);
  EXPECT_GT(again.job.local_steps, job::TrialOf({}).local_steps);
  EXPECT_LT(again.job.schedule.total_rounds, 4000);
  EXPECT_GT(again.job.eval_every, 0);
  EXPECT_LT(again.job.eval_every, 400);
  EXPECT_EQ(cluster.sent().assignments.back().job.local_steps, again.job.local_steps);
  ASSERT_OK(cluster.Register(b).status());
  ASSERT_OK(cluster.Join(a));
  ASSERT_OK(cluster.Join(b));
  cluster.Ask(a);
  const GrantAnswer answer = cluster.Ask(b);
  ASSERT_TRUE(answer.grant.has_value());
  EXPECT_EQ(answer.grant->round, Round(0));
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).exchange_choice,
              HasSubstr("workers send 10 Mbit/s and receive 10 Mbit/s, the round trip is 100 ms"));

  // A process that continues from the journal uses the earlier choice and runs no trial.
  const std::optional<CoordinatorMemory> memory = cluster.coordinator().Memory();
  ASSERT_TRUE(memory.has_value());
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Coordinator> resumed,
                       Coordinator::Resume(AutoConfig(), *memory, cluster.now()));
  EXPECT_EQ(resumed->phase(), CoordinatorPhase::kRunning);
  EXPECT_THAT(
      resumed->Snapshot(cluster.now()).exchange_choice,
      StartsWith(
          "the exchange settings were taken from the journal and the flags: --mode=local_sgd"));
  for (int shard = 0; shard < AutoConfig().num_shards; ++shard) {
    ASSERT_OK(resumed->OnShardAttached(shard, AutoConfig().num_shards, 70 + shard,
                                       memory->shards.server_incarnation,
                                       absl::StrCat("host:", shard), cluster.now()));
  }
  ASSERT_TRUE(resumed->Memory().has_value());
  EXPECT_EQ(resumed->Memory()->model.settings, memory->model.settings);
  // The flags of an operator override the choice. Another number of local steps is another job, so
  // Resume() fails.
  Coordinator::Config other = AutoConfig();
  other.open_settings.local_steps = false;
  other.job.local_steps = again.job.local_steps + 1;
  EXPECT_THAT(Coordinator::Resume(other, *memory, cluster.now()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--local_steps")));
}

// Workers measure their path and report it in heartbeats, which come every few seconds. Many rounds
// may pass before the first of these heartbeats.
TEST(CoordinatorTuningTest, AJobThatIsShorterThanItsTrialIsNotOverWithIt) {
  Coordinator::Config config = AutoConfig();
  config.job.schedule.total_rounds = 2;
  config.job.min_workers = 1;
  config.job.global_batch_size = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const std::vector<TestWorker> workers = {cluster.Add("a"), cluster.Add("b")};
  // A round has one step of one sample, so the other worker never gets work.
  for (int round = 0; round < 2 * model::ExchangeTuning::kTrialRounds; ++round) {
    const GrantAnswer answer = cluster.Ask(workers[0]);
    ASSERT_TRUE(answer.grant.has_value()) << round;
    ASSERT_EQ(answer.grant->kind, messages::Grant::Kind::kTrain) << round;
    EXPECT_EQ(answer.grant->num_heldout_samples, 0);
    cluster.Ask(workers[0], CoordinatorHarness::ReportOf(*answer.grant));
  }
  cluster.Heartbeat(workers[0]);
  const GrantAnswer answer = cluster.Ask(workers[0]);
  ASSERT_TRUE(answer.grant.has_value());
  cluster.coordinator()
      .RequestGrant(workers[0].life, CoordinatorHarness::ReportOf(*answer.grant), cluster.now())
      .IgnoreError();
  EXPECT_EQ(cluster.store().restores, 2) << "it has chosen";
}

TEST(CoordinatorTuningTest, WhatACheckpointHasIsNotMeasuredAgain) {
  CoordinatorHarness cluster(AutoConfig());
  job::JobSpec saved = job::TrialOf(AutoConfig().job);
  saved.local_steps = 40;
  RestoreChoice choice{.source = shards::InitialSource{}, .server_incarnation = 1000};
  choice.state = checkpoints::CoordinatorState();
  choice.job = saved;
  cluster.Start(choice);
  TestWorker a = cluster.Add("a");
  EXPECT_THAT(
      cluster.coordinator().Snapshot(cluster.now()).exchange_choice,
      StartsWith(
          "the exchange settings were taken from the checkpoint and the flags: --mode=local_sgd"));
  ASSERT_OK_AND_ASSIGN(const messages::Registration registration, cluster.Register(a));
  EXPECT_EQ(registration.job.local_steps, 40);
}

}  // namespace
}  // namespace lodestar::coordinator
