// SPDX-License-Identifier: Apache-2.0

// Tests of asynchronous jobs: how work is granted, and how far ahead of the others a worker may be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CoordinatorAsyncTest, BoundHoldsTheFastestAndReleasesIt) {
  Coordinator::Config config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  config.job.max_rounds_ahead = 1;
  config.job.schedule.total_rounds = 100;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker fast = cluster.Add("fast");
  const TestWorker slow = cluster.Add("slow");
  const messages::Grant slow_grant = *cluster.Ask(slow).grant;
  GrantAnswer answer = cluster.Ask(fast);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(answer.grant.has_value()) << round << answer.pending_reason;
    EXPECT_EQ(answer.grant->min_round, Round(0));
    answer = cluster.Ask(fast, CoordinatorHarness::ReportOf(*answer.grant));
  }
  EXPECT_THAT(answer.pending_reason, AllOf(HasSubstr("fast would be 2"), HasSubstr("for slow")));
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
              HasSubstr("waits for slow"));
  const messages::HeartbeatCall still{slow.life, 0, 0, "pull",
                                      messages::Standstill{.shard = 1, .age = {}}};
  EXPECT_TRUE(cluster.coordinator().Heartbeat(still, cluster.now()).ok());
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
              HasSubstr("waits for slow; worker slow: no bytes from shard 1 at host:1"));
  cluster.Ask(slow, CoordinatorHarness::ReportOf(slow_grant));
  EXPECT_TRUE(cluster.Ask(fast).grant.has_value()) << "released";
  EXPECT_TRUE(cluster.sent().plans.empty()) << "no rosters";
}

TEST(CoordinatorAsyncTest, WindowOfOneLocalStepIsNotExtended) {
  for (const job::Mode mode : {job::Mode::kAsync, job::Mode::kAsyncLocalSgd}) {
    Coordinator::Config config = TestConfig();
    config.job.mode = mode;
    config.job.local_steps = 1;
    config.job.schedule.total_rounds = 100;
    CoordinatorHarness cluster(config);
    cluster.Start();
    const TestWorker worker = cluster.Add("a");
    const messages::Grant grant = *cluster.Ask(worker).grant;
    ASSERT_EQ(grant.local_steps, 1);
    const auto more = cluster.coordinator().ExtendGrant(worker.life, grant.round, cluster.now());
    EXPECT_EQ(more.status().code(), mode == job::Mode::kAsync
                                        ? absl::StatusCode::kOk
                                        : absl::StatusCode::kFailedPrecondition);
  }
}

TEST(CoordinatorAsyncTest, WhereAllAreSilentTheyAreNamed) {
  Coordinator::Config config = TestConfig(2);
  config.job.mode = job::Mode::kAsync;
  config.lease = absl::Seconds(10);
  config.job.schedule.total_rounds = 100;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const std::vector<TestWorker> workers = {cluster.Add("a"), cluster.Add("b")};
  const auto waiting_for = [&] {
    return cluster.coordinator().Snapshot(cluster.now()).waiting_for;
  };
  EXPECT_EQ(waiting_for(), "waits for a, b to ask for work");
  const GrantAnswer first = cluster.Ask(workers[0]);
  cluster.Ask(workers[1]);
  EXPECT_EQ(waiting_for(), "");
  for (int i = 0; i < 4; ++i) cluster.Pass(absl::Seconds(3), workers);
  EXPECT_EQ(waiting_for(), "waits for a, b to deliver a round, for 12s");
  // If one worker goes on, the job waits for nothing.
  cluster.Ask(workers[0], CoordinatorHarness::ReportOf(*first.grant));
  EXPECT_EQ(waiting_for(), "");
}

TEST(CoordinatorAsyncTest, WhoKeepsSpaceIsNamedWhateverOthersDo) {
  Coordinator::Config config = TestConfig(3);
  config.job.mode = job::Mode::kAsync;
  config.lease = absl::Seconds(10);
  config.job.schedule.total_rounds = 100;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const std::vector<TestWorker> workers = {cluster.Add("a"), cluster.Add("b"), cluster.Add("c")};
  const auto pusher = [&](int index) {
    return sync::Pusher{workers[index].life.worker, workers[index].life.incarnation};
  };
  const messages::Grant kept = *cluster.Ask(workers[0]).grant;
  cluster.Ask(workers[1]);
  GrantAnswer answer = cluster.Ask(workers[2]);
  const sync::PushSpace space = {.unfinished = {{pusher(0), kept.round, 3, 1024, 65536}},
                                 .held = {pusher(1)}};
  for (int second = 0; second <= 10; ++second) {
    EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).waiting_for, "") << second;
    cluster.coordinator().OnPushSpace(0, space, cluster.now());
    answer = cluster.Ask(workers[2], CoordinatorHarness::ReportOf(*answer.grant));
    cluster.Pass(absl::Seconds(1), workers);
  }
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
            "worker a has unfinished contributions that fill the memory for contributions on shard "
            "0, and other workers wait for that memory: shard 0 has received 1024 of 65536 bytes "
            "of bucket 3 in 11s");
}

TEST(CoordinatorAsyncTest, BoundDoesNotWaitForTheDeadNorForNewcomersPast) {
  Coordinator::Config config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  config.job.max_rounds_ahead = 1;
  config.job.schedule.total_rounds = 100;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker fast = cluster.Add("fast");
  const TestWorker dead = cluster.Add("dead");
  cluster.Ask(dead);
  GrantAnswer answer = cluster.Ask(fast);
  while (answer.grant.has_value()) {
    answer = cluster.Ask(fast, CoordinatorHarness::ReportOf(*answer.grant));
  }
  cluster.Pass(absl::Seconds(11), {fast});
  answer = cluster.Ask(fast);
  ASSERT_TRUE(answer.grant.has_value()) << answer.pending_reason;
  for (int round = 0; round < 5; ++round) {
    answer = cluster.Ask(fast, CoordinatorHarness::ReportOf(*answer.grant));
  }
  cluster.Add("new");
  answer = cluster.Ask(fast, CoordinatorHarness::ReportOf(*answer.grant));
  EXPECT_TRUE(answer.grant.has_value()) << answer.pending_reason;
}

TEST(CoordinatorAsyncTest, AsynchronousJobEndsAfterItsRoundsWithOneEvaluation) {
  Coordinator::Config config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  config.job.eval_every = 3;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const std::vector<messages::Grant> grants =
      cluster.RunToEnd({cluster.Add("a"), cluster.Add("b")});
  int64_t evaluated = 0;
  int64_t trained = 0;
  for (const messages::Grant& grant : grants) {
    if (grant.kind == messages::Grant::Kind::kTrain) ++trained;
    EXPECT_TRUE(grant.round != Round(3) || grant.num_heldout_samples == 7);
    if (grant.kind == messages::Grant::Kind::kEvaluate) evaluated += grant.num_heldout_samples;
  }
  EXPECT_EQ(trained, 4);
  EXPECT_EQ(evaluated, 7);
}

TEST(CoordinatorAsyncTest, SavesBucketsAsTheyAreWhileGrantsAreOut) {
  Coordinator::Config config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  config.checkpoint_dir = "ckpt";
  config.checkpoint_schedule.every_rounds = 2;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  cluster.Ask(a);
  EXPECT_TRUE(cluster.sent().save_directories.empty());
  cluster.Ask(b);
  EXPECT_EQ(cluster.sent().commands.back(), "save as is");
  cluster.FinishSave();
  EXPECT_EQ(cluster.store().published.back().state.ledger.next_round, 2);
}

TEST(CoordinatorAsyncTest, RoundOfALostWorkerIsCountedAsLost) {
  Coordinator::Config config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  CoordinatorHarness cluster(config);
  cluster.Start();
  cluster.Ask(cluster.Add("a"));
  cluster.Pass(absl::Seconds(11));
  EXPECT_TRUE(cluster.observer().rounds.empty());
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_EQ(snapshot.rounds_committed_short, 1);
  EXPECT_EQ(snapshot.total_rounds, 5) << "another one is trained in its place";
}

// A worker may be lost after the servers have acknowledged its push and before it reports the
// round. A checkpoint from before the loss may lack this push.
TEST(CoordinatorAsyncTest, ACheckpointFromBeforeAWorkerWasLostIsNotTheLast) {
  Coordinator::Config config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  config.checkpoint_dir = "ckpt";
  CoordinatorHarness cluster(config);
  cluster.Start();
  cluster.Ask(cluster.Add("a"));
  ASSERT_TRUE(cluster.coordinator().RequestCheckpoint(cluster.now()).ok());
  cluster.FinishSave();
  ASSERT_EQ(cluster.sent().save_directories.size(), 1);
  cluster.Pass(absl::Seconds(11));
  cluster.coordinator().RequestStop("asked", cluster.now());
  cluster.Pass(absl::ZeroDuration());
  EXPECT_EQ(cluster.sent().save_directories.size(), 2);
}

TEST(CoordinatorAsyncTest, LockStepGoesByRosters) {
  Coordinator::Config config = TestConfig();
  config.job.mode = job::Mode::kAsync;
  config.job.max_rounds_ahead = 0;
  config.job.min_workers = 2;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const std::vector<messages::Grant> grants =
      cluster.RunToEnd({cluster.Add("a"), cluster.Add("b")});
  EXPECT_EQ(grants.size(), 2 * (4 + 1));
  EXPECT_EQ(cluster.sent().plans.size(), 4);
}

}  // namespace
}  // namespace lodestar::coordinator
