// SPDX-License-Identifier: Apache-2.0

// Tests of the lives of workers and of rounds.
#include "server/coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CoordinatorTest, WholeLifeOfAJobWithTwoWorkers) {
  Coordinator::Config config = TestConfig(2);
  config.exit_when_done = true;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const std::vector<TestWorker> workers = {cluster.Add("a"), cluster.Add("b")};
  const std::vector<messages::Grant> grants = cluster.RunToEnd(workers);

  ASSERT_EQ(grants.size(), 2 * (4 + 1));
  EXPECT_EQ(cluster.sent().plans.size(), 4);
  for (int64_t round = 0; round < 4; ++round) {
    const sync::RoundPlan& plan = cluster.sent().plans[round];
    EXPECT_EQ(plan.round, Round(round));
    EXPECT_EQ(plan.roster.size(), 2);
    EXPECT_EQ(plan.total_samples(), 6);
    EXPECT_EQ(grants[2 * round].min_round, Round(round));
    EXPECT_EQ(grants[2 * round].first_sample, 6 * round);
    EXPECT_EQ(grants[2 * round + 1].first_sample, 6 * round + 3);
    // Each grant tells the worker the job's loss in the previous round.
    const job::JobLoss& told = grants[2 * round + 1].loss;
    EXPECT_EQ(told.train.has_value(), round > 0);
    EXPECT_EQ(told.train_round, Round(std::max<int64_t>(0, round - 1)));
  }
  ASSERT_EQ(cluster.observer().rounds.size(), 5);
  const rounds::RoundSummary& trained = cluster.observer().rounds[3];
  EXPECT_EQ(trained.train_loss, 2.0);
  EXPECT_EQ(trained.samples, 6);
  EXPECT_EQ(trained.total_samples, 24);
  EXPECT_EQ(trained.epoch, 2.0);
  EXPECT_EQ(trained.workers, 2);
  const rounds::RoundSummary& evaluated = cluster.observer().rounds[4];
  EXPECT_FALSE(evaluated.trained);
  EXPECT_EQ(evaluated.round, Round(4));
  EXPECT_EQ(evaluated.heldout_loss, 3.0);
  EXPECT_DOUBLE_EQ(*evaluated.heldout_accuracy, 3.0 / 7.0);
  EXPECT_TRUE(evaluated.heldout_complete);

  EXPECT_FALSE(cluster.coordinator().outcome().has_value()) << "the workers are still there";
  for (const TestWorker& worker : workers) {
    const job::JobLoss told = cluster.Ask(worker).grant->loss;
    EXPECT_EQ(told.heldout, 3.0);
    EXPECT_EQ(told.heldout_round, Round(4));
    EXPECT_TRUE(cluster.coordinator().Leave(worker.life, "done", {}, cluster.now()).ok());
  }
  EXPECT_TRUE(cluster.coordinator().outcome().has_value());
  EXPECT_EQ(cluster.sent().commands.back(), "stop");
}

TEST(CoordinatorTest, TheCommittedVersionIsThatOfTheRoundsThatAreOver) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker worker = cluster.Add("a");
  std::optional<messages::RoundReport> report;
  for (int64_t round = 0; round < 4; ++round) {
    EXPECT_EQ(cluster.coordinator().committed_round(), Round(round > 0 ? round - 1 : 0));
    const GrantAnswer answer = cluster.Ask(worker, report);
    ASSERT_TRUE(answer.grant.has_value());
    EXPECT_EQ(cluster.coordinator().committed_round(), Round(round));
    report = CoordinatorHarness::ReportOf(*answer.grant);
  }
  // The final evaluation opens a round, but this round does not update the weights.
  const GrantAnswer answer = cluster.Ask(worker, report);
  ASSERT_TRUE(answer.grant.has_value());
  EXPECT_EQ(answer.grant->kind, messages::Grant::Kind::kEvaluate);
  EXPECT_EQ(cluster.coordinator().committed_round(), Round(4));
  cluster.RunToEnd({worker});
  EXPECT_EQ(cluster.coordinator().committed_round(), Round(4));
}

TEST(CoordinatorTest, WithoutRostersAnyVersionWillDo) {
  Coordinator::Config config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  CoordinatorHarness cluster(config);
  cluster.Start();
  cluster.RunToEnd({cluster.Add("a")});
  EXPECT_EQ(cluster.coordinator().committed_round(), Round(0));
}

TEST(CoordinatorTest, RegistrationIsUnavailableUntilEveryShardServes) {
  CoordinatorHarness cluster;
  TestWorker worker{"a", 1, {}};
  const auto early = cluster.Register(worker);
  EXPECT_EQ(early.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(early.status()), HasSubstr("shard 1 (missing"));
  cluster.AttachAll();
  EXPECT_EQ(cluster.store().restores, 1);
  cluster.coordinator().OnRestoreChosen(
      RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 50}, cluster.now());
  cluster.coordinator().OnShardEvent(0, shards::ShardLoaded{50, absl::OkStatus()}, cluster.now());
  EXPECT_THAT(Message(cluster.Register(worker).status()), HasSubstr("shard 1 (loading"));
  cluster.coordinator().OnShardEvent(1, shards::ShardLoaded{49, absl::OkStatus()}, cluster.now());
  EXPECT_FALSE(cluster.Register(worker).ok()) << "an answer to an earlier assignment";
  cluster.coordinator().OnShardEvent(1, shards::ShardLoaded{50, absl::OkStatus()}, cluster.now());
  const auto answer = cluster.Register(worker);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->server_incarnation, 50);
  EXPECT_EQ(answer->map->servers.size(), 2);
  EXPECT_FALSE(answer->needs_initial_weights);
}

TEST(CoordinatorTest, HeldCallSeesTheChangeThroughTheStateVersion) {
  CoordinatorHarness cluster(TestConfig(2));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  cluster.Ask(a);
  const uint64_t before = cluster.coordinator().state_version();
  EXPECT_FALSE(cluster.coordinator().PollGrant(a.life, cluster.now())->grant.has_value());
  EXPECT_EQ(cluster.coordinator().state_version(), before) << "polling changes nothing";
  cluster.Ask(b);
  EXPECT_GT(cluster.coordinator().state_version(), before);
  EXPECT_TRUE(cluster.coordinator().PollGrant(a.life, cluster.now())->grant.has_value());
}

TEST(CoordinatorTest, LostReplyIsAnsweredWithTheSameGrant) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant first = *cluster.Ask(a).grant;
  EXPECT_EQ(*cluster.Ask(a).grant, first);
  const messages::RoundReport report = CoordinatorHarness::ReportOf(first);
  const messages::Grant second = *cluster.Ask(a, report).grant;
  EXPECT_EQ(second.round, Round(1));
  EXPECT_EQ(*cluster.Ask(a, report).grant, second) << "a repeated report";
  EXPECT_EQ(cluster.observer().rounds.size(), 1) << "counted once";
}

TEST(CoordinatorTest, ReportsThatFitNoGrantAreRefused) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant grant = *cluster.Ask(a).grant;
  messages::RoundReport report = CoordinatorHarness::ReportOf(grant);
  report.round = Round(3);
  const auto ahead = cluster.coordinator().RequestGrant(a.life, report, cluster.now());
  EXPECT_EQ(ahead.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(ahead.status()), AllOf(HasSubstr("round 3"), HasSubstr("round 0")));
  report = CoordinatorHarness::ReportOf(grant);
  report.num_samples = 7;
  EXPECT_EQ(cluster.coordinator().RequestGrant(a.life, report, cluster.now()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(cluster.observer().rounds.empty());
}

TEST(CoordinatorTest, RoundGoesOnWithoutAWorkerWhoseLeaseExpires) {
  CoordinatorHarness cluster(TestConfig(2));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  const TestWorker c = cluster.Add("c");
  for (const TestWorker& worker : {a, b, c}) cluster.Ask(worker);
  ASSERT_EQ(cluster.sent().plans[0].roster.size(), 2) << "c came after the opening";
  const messages::RoundReport report = CoordinatorHarness::ReportOf(*cluster.Ask(a).grant);
  EXPECT_THAT(cluster.Ask(a, report).pending_reason, HasSubstr("waits for b"));
  cluster.Pass(absl::Seconds(6), {a, c});
  const ClusterSnapshot waiting = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_THAT(waiting.waiting_for, AllOf(HasSubstr("round 0"), HasSubstr("b"), HasSubstr("6s")));
  EXPECT_THAT(waiting.open_round->arrived, ElementsAre("a"));
  EXPECT_EQ(waiting.open_round->missing.at(0).worker, "b");
  cluster.Pass(absl::Seconds(5), {a, c});

  EXPECT_THAT(cluster.sent().commands, Contains("drop 2"));
  const rounds::RoundSummary& round = cluster.observer().rounds.at(0);
  EXPECT_TRUE(round.committed_short);
  EXPECT_EQ(round.samples, 3);
  EXPECT_EQ(round.workers, 1);
  ASSERT_EQ(cluster.sent().plans.size(), 2);
  EXPECT_EQ(cluster.sent().plans[1].roster.at(1).worker, c.life.worker);
  EXPECT_EQ(cluster.Ask(a).grant->first_sample, 6) << "the lost part is handed to nobody";
  EXPECT_EQ(cluster.coordinator().RequestGrant(b.life, {}, cluster.now()).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).rounds_committed_short, 1);
}

TEST(CoordinatorTest, ARoundThatAllAreLostFromIsNoneOfThoseAskedFor) {
  CoordinatorHarness cluster(TestConfig());
  cluster.Start();
  cluster.Ask(cluster.Add("a"));
  cluster.Pass(absl::Seconds(11));
  ASSERT_EQ(cluster.observer().rounds.size(), 1);
  EXPECT_EQ(cluster.observer().rounds[0].workers, 0);
  EXPECT_THAT(cluster.observer().events,
              Contains(AllOf(HasSubstr("round 0 ended"), HasSubstr("round 4"))));
  cluster.RunToEnd({cluster.Add("b")});
  EXPECT_EQ(cluster.observer().rounds.size(), 1 + 4 + 1) << "with the final evaluation";
  const ClusterSnapshot end = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_EQ(end.round, 5);
  EXPECT_EQ(end.total_rounds, 5);
  const auto ending = cluster.coordinator().Ending();
  ASSERT_TRUE(ending.has_value());
  ASSERT_TRUE(ending->ok());
  EXPECT_EQ((*ending)->text, "complete after all 5 rounds, 1 of them without a contribution");
}

TEST(CoordinatorTest, WorkerThatLeavesFinishesWhatItWasGrantedAndGetsNothingNew) {
  CoordinatorHarness cluster(TestConfig(2));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  cluster.Ask(a);
  cluster.Ask(b);
  // The round was opened, but b does not know this, because its connection was lost before the
  // answer.
  ASSERT_TRUE(cluster.coordinator().BeginLeave(b.life, cluster.now()).ok());
  const messages::Grant grant = *cluster.Ask(b).grant;
  EXPECT_EQ(grant.kind, messages::Grant::Kind::kTrain);
  cluster.Ask(a, CoordinatorHarness::ReportOf(*cluster.Ask(a).grant));
  EXPECT_EQ(cluster.Ask(b, CoordinatorHarness::ReportOf(grant)).grant->kind,
            messages::Grant::Kind::kDone);
  ASSERT_EQ(cluster.observer().rounds.size(), 1);
  EXPECT_FALSE(cluster.observer().rounds[0].committed_short);
  EXPECT_EQ(cluster.Ask(b).grant->kind, messages::Grant::Kind::kDone)
      << "and no part in the next round";
  EXPECT_TRUE(cluster.coordinator().Leave(b.life, "told to stop", {}, cluster.now()).ok());
  EXPECT_EQ(cluster.Ask(a).grant->round, Round(1));
  EXPECT_EQ(cluster.sent().plans.back().roster.size(), 1);
}

TEST(CoordinatorTest, QuorumGoesOnWithoutTheStraggler) {
  Coordinator::Config config = TestConfig(3);
  config.job.quorum = 2;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  const TestWorker c = cluster.Add("c");
  for (const TestWorker& worker : {a, b, c}) cluster.Ask(worker);
  const messages::Grant slow = *cluster.Ask(c).grant;
  cluster.Ask(a, CoordinatorHarness::ReportOf(*cluster.Ask(a).grant));
  cluster.Ask(b, CoordinatorHarness::ReportOf(*cluster.Ask(b).grant));
  ASSERT_EQ(cluster.sent().plans.size(), 2);
  EXPECT_EQ(cluster.sent().plans[1].roster.size(), 2);
  EXPECT_TRUE(cluster.observer().rounds.at(0).committed_short);
  EXPECT_EQ(*cluster.Ask(c).grant, slow) << "it still holds its grant";
  EXPECT_FALSE(cluster.Ask(c, CoordinatorHarness::ReportOf(slow)).grant.has_value());
  EXPECT_EQ(cluster.observer().rounds[0].samples, 4) << "late samples do not count";
  cluster.Ask(a, CoordinatorHarness::ReportOf(*cluster.Ask(a).grant));
  cluster.Ask(b, CoordinatorHarness::ReportOf(*cluster.Ask(b).grant));
  EXPECT_EQ(cluster.Ask(c).grant->round, Round(2));
}

TEST(CoordinatorTest, FinalEvaluationIsRepeatedIfAWorkerIsLostDuringIt) {
  Coordinator::Config config = TestConfig(2);
  config.job.schedule.total_rounds = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  for (const TestWorker& worker : {a, b}) cluster.Ask(worker);
  for (const TestWorker& worker : {a, b}) {
    cluster.Ask(worker, CoordinatorHarness::ReportOf(*cluster.Ask(worker).grant));
  }
  const messages::Grant part = *cluster.Ask(a).grant;
  EXPECT_EQ(part.kind, messages::Grant::Kind::kEvaluate);
  EXPECT_EQ(part.num_heldout_samples, 4);
  EXPECT_EQ(part.min_round, Round(1));
  EXPECT_THAT(cluster.Ask(a, CoordinatorHarness::ReportOf(part)).pending_reason,
              HasSubstr("the final evaluation waits for b"));
  cluster.Pass(absl::Seconds(6), {a});
  cluster.Pass(absl::Seconds(6), {a});
  const messages::Grant whole = *cluster.Ask(a, CoordinatorHarness::ReportOf(part)).grant;
  EXPECT_EQ(whole.num_heldout_samples, 7);
  EXPECT_EQ(whole.min_round, Round(1));
  EXPECT_EQ(cluster.Ask(a, CoordinatorHarness::ReportOf(whole)).grant->kind,
            messages::Grant::Kind::kDone);
  EXPECT_TRUE(cluster.observer().rounds.back().heldout_complete);
  EXPECT_EQ(cluster.observer().rounds.back().heldout_loss, 3.0);
}

TEST(CoordinatorTest, EvaluationThatAWorkerHasLeftOutIsNotComplete) {
  Coordinator::Config config = TestConfig(2);
  config.job.eval_every = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  for (const TestWorker& worker : {a, b}) cluster.Ask(worker);
  for (const TestWorker& worker : {a, b}) {
    cluster.Ask(worker, CoordinatorHarness::ReportOf(*cluster.Ask(worker).grant));
  }
  messages::RoundReport told_to_stop = CoordinatorHarness::ReportOf(*cluster.Ask(a).grant);
  ASSERT_GT(told_to_stop.heldout_predictions, 0);
  told_to_stop.heldout_loss_sum = 0.0;
  told_to_stop.heldout_correct = 0;
  told_to_stop.heldout_predictions = 0;
  cluster.Ask(a, told_to_stop);
  cluster.Ask(b, CoordinatorHarness::ReportOf(*cluster.Ask(b).grant));
  const rounds::RoundSummary& evaluated = cluster.observer().rounds.back();
  EXPECT_EQ(evaluated.heldout_loss, 3.0) << "of what is there";
  EXPECT_FALSE(evaluated.heldout_complete);
}

}  // namespace
}  // namespace lodestar::coordinator
