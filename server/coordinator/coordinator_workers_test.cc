// SPDX-License-Identifier: Apache-2.0

// Tests of how workers come and go, and of the messages that say what workers and the job wait for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "common/runtime/status_hints.h"
#include "common/testing/status_matchers.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/stragglers/straggler_watch.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(CoordinatorWorkersTest, NamesTheWorkersThatDoNotReachAServerAndTheAddresses) {
  CoordinatorHarness cluster(TestConfig(1));
  cluster.Start();
  TestWorker worker{"afar", 7, {}};
  ASSERT_TRUE(cluster.Register(worker).ok());
  const auto waiting_for = [&](const std::string& activity) {
    const messages::HeartbeatCall call{.life = worker.life, .activity = activity};
    EXPECT_TRUE(cluster.coordinator().Heartbeat(call, cluster.now()).ok());
    return cluster.coordinator().Snapshot(cluster.now()).waiting_for;
  };
  EXPECT_THAT(waiting_for("start"), Not(HasSubstr("afar")));
  EXPECT_THAT(waiting_for("no path"),
              AllOf(HasSubstr("afar"), HasSubstr("host:0, host:1"), HasSubstr("--advertise")));
}

// Fixture with a worker whose report of round 0 was counted. The tests let the worker connect
// again.
class AcknowledgedReportTest : public testing::Test {
 protected:
  AcknowledgedReportTest() : cluster_(TestConfig()) {
    cluster_.Start();
    worker_ = cluster_.Add("a");
    const std::optional<messages::Grant> grant = cluster_.Ask(worker_).grant;
    EXPECT_TRUE(grant.has_value());
    EXPECT_TRUE(cluster_.Ask(worker_, CoordinatorHarness::ReportOf(*grant)).grant.has_value());
    worker_.acknowledged = {.server_incarnation = cluster_.coordinator().server_incarnation(),
                            .life = worker_.life.incarnation,
                            .round = Round(0)};
  }

  CoordinatorHarness cluster_;
  TestWorker worker_;
};

TEST_F(AcknowledgedReportTest, WhatIsKnownOrOfAnEarlierLifeOfTheServersIsTaken) {
  const messages::WorkerLife life = worker_.life;
  EXPECT_OK(cluster_.Register(worker_));
  EXPECT_EQ(worker_.life, life) << "the life goes on";
  worker_.acknowledged->server_incarnation -= 1;
  worker_.acknowledged->round = Round(1000);
  EXPECT_OK(cluster_.Register(worker_))
      << "these servers have gone back with an alarm of their own";
  EXPECT_EQ(worker_.life, life);
  EXPECT_THAT(cluster_.observer().alarms, Not(Contains(HasSubstr("acknowledged"))));
}

TEST_F(AcknowledgedReportTest, WhatIsNotKnownBeginsAnotherLifeWithAnAlarm) {
  const messages::AcknowledgedReport known = *worker_.acknowledged;
  messages::AcknowledgedReport later_round = known;
  later_round.round = Round(1);
  messages::AcknowledgedReport later_life = known;
  later_life.life = Incarnation(known.life.value() + 100);
  messages::AcknowledgedReport later_servers = known;
  later_servers.server_incarnation += 1;
  for (messages::AcknowledgedReport lacking : {later_round, later_life, later_servers}) {
    const messages::WorkerLife former = worker_.life;
    const int64_t next_round = cluster_.coordinator().Snapshot(cluster_.now()).round;
    if (lacking.life == known.life) lacking.life = former.incarnation;
    worker_.acknowledged = lacking;
    EXPECT_THAT(cluster_.Register(worker_), StatusIs(absl::StatusCode::kAborted));
    EXPECT_THAT(
        cluster_.observer().alarms.back(),
        AllOf(HasSubstr("'a'"), HasSubstr(absl::StrCat("round ", lacking.round.value(), " was"))));
    EXPECT_EQ(cluster_.coordinator().Snapshot(cluster_.now()).round, next_round)
        << "one worker's word does not move the cluster";
    worker_.acknowledged.reset();
    ASSERT_OK(cluster_.Register(worker_));
    EXPECT_NE(worker_.life, former);
    ASSERT_OK(cluster_.Join(worker_));
    EXPECT_TRUE(cluster_.Ask(worker_).grant.has_value());
  }
}

TEST_F(AcknowledgedReportTest, LiarsCannotDriveOtherAlarmsOut) {
  cluster_.coordinator().RaiseAlarm("the disk is full", cluster_.now(), AlarmKind::kAlarm);
  for (int i = 0; i < 2 * AlarmBook::kMaxAlarms; ++i) {
    TestWorker liar = {absl::StrCat("liar-", i), 100u + i, {}, {}, worker_.acknowledged};
    liar.acknowledged->round = Round(1000 + i);
    EXPECT_THAT(cluster_.Register(liar), StatusIs(absl::StatusCode::kAborted));
  }
  const std::vector<AlarmSnapshot> alarms = cluster_.coordinator().Snapshot(cluster_.now()).alarms;
  EXPECT_LT(alarms.size(), 8u);
  EXPECT_THAT(alarms, Contains(::testing::Field(&AlarmSnapshot::text, "the disk is full")));
}

TEST_F(AcknowledgedReportTest, HeartbeatThatTellsOfWhatIsNotKnownHasItsWorkerRegisterAgain) {
  messages::HeartbeatCall call = {worker_.life, 0, 0, "pull"};
  call.acknowledged = Round(0);
  EXPECT_OK(cluster_.coordinator().Heartbeat(call, cluster_.now()));
  call.acknowledged = Round(1);
  EXPECT_THAT(cluster_.coordinator().Heartbeat(call, cluster_.now()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("round 1")));
}

TEST_F(AcknowledgedReportTest, StrangerCannotEndTheLifeOfAName) {
  TestWorker stranger = {"a", worker_.instance_id + 1, {}, {}, {}};
  stranger.acknowledged = worker_.acknowledged;
  ++stranger.acknowledged->server_incarnation;
  EXPECT_THAT(cluster_.Register(stranger), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_OK(cluster_.coordinator().Heartbeat({worker_.life, 0, 0, "compute"}, cluster_.now()));
}

TEST(CoordinatorWorkersTest, AnEmptyFolderBesideAWorkerThatRemembersAJobIsAnAlarm) {
  const messages::AcknowledgedReport known = {
      .server_incarnation = 900, .life = Incarnation(3), .round = Round(57)};
  for (const std::string folder : {"/runs/1", ""}) {
    CoordinatorHarness cluster(TestConfig());
    cluster.Start(
        {.source = shards::InitialSource{}, .server_incarnation = 1000, .empty_folder = folder});
    TestWorker first = {"a", 1, {}, "", known};
    TestWorker second = {"b", 2, {}, "", known};
    ASSERT_OK(cluster.Register(first));
    ASSERT_OK(cluster.Register(second));
    const std::vector<std::string>& alarms = cluster.observer().alarms;
    ASSERT_EQ(alarms.size(), folder.empty() ? 0 : 1) << "one worker's word is enough";
    if (folder.empty()) continue;
    EXPECT_THAT(alarms.front(), AllOf(HasSubstr(folder), HasSubstr("round 57")));
  }
}

// Fixture with a cluster that began from a checkpoint. The servers of incarnation 700 wrote the
// checkpoint. It contains the worker "known".
class OtherServersTest : public testing::Test {
 protected:
  OtherServersTest() : cluster_(TestConfig()) {
    checkpoints::CoordinatorState state;
    state.server_incarnation = 700;
    state.ledger.next_round = 10;
    state.membership.names = {{"known", WorkerId(1), false}};
    state.membership.last_id = WorkerId(1);
    state.membership.last_incarnation = Incarnation(5);
    cluster_.Start({.source = shards::CheckpointSource{"ckpt/round-00000010"},
                    .state = state,
                    .server_incarnation = 1000});
  }
  // Registers a worker whose last report was acknowledged by servers of the incarnation
  // `server_incarnation`. Returns the number of alarms since the cluster began.
  size_t AlarmsAfter(const std::string& name, uint64_t server_incarnation, int64_t round) {
    worker_ = {name,
               1,
               {},
               "",
               messages::AcknowledgedReport{server_incarnation, Incarnation(3), Round(round)}};
    EXPECT_OK(cluster_.Register(worker_));
    return cluster_.observer().alarms.size();
  }

  CoordinatorHarness cluster_;
  TestWorker worker_;
};

TEST_F(OtherServersTest, AWorkerOfTheServersThatHaveWrittenTheCheckpointIsNoStranger) {
  EXPECT_EQ(AlarmsAfter("new", 700, 9), 0u);
}
TEST_F(OtherServersTest, AWorkerThatTheCheckpointNamesIsNoStrangerOfEarlierServers) {
  EXPECT_EQ(AlarmsAfter("known", 600, 9), 0u);
}
TEST_F(OtherServersTest, AWorkerWhoseRoundsWereLostIsNoStranger) {
  EXPECT_EQ(AlarmsAfter("known", 800, 10), 0u);
}
TEST_F(OtherServersTest, AWorkerThatTheCheckpointDoesNotNameIsAnAlarm) {
  ASSERT_EQ(AlarmsAfter("gpu-0", 600, 9), 1u);
  EXPECT_THAT(cluster_.observer().alarms.front(), HasSubstr("'gpu-0'"));
  EXPECT_EQ(AlarmsAfter("gpu-0", 600, 9), 1u) << "the same life";
}
TEST_F(OtherServersTest, ARoundThatNoLaterServersOfThisRunGaveIsAnAlarmUnderAKnownName) {
  EXPECT_EQ(AlarmsAfter("known", 800, 9), 1u);
}
TEST_F(OtherServersTest, TheAlarmEndsWithTheLifeOfTheWorker) {
  ASSERT_EQ(AlarmsAfter("gpu-0", 600, 9), 1u);
  const auto is_over = [this] {
    return cluster_.coordinator().Snapshot(cluster_.now()).alarms.front().over_age.has_value();
  };
  EXPECT_FALSE(is_over());
  ASSERT_OK(cluster_.coordinator().Evict("gpu-0", "another job's", cluster_.now()));
  EXPECT_TRUE(is_over());
}
TEST_F(OtherServersTest, ManyStrangersShareAnAlarm) {
  for (int i = 0; i < 2 * AlarmBook::kMaxAlarms; ++i) AlarmsAfter(absl::StrCat("w", i), 600, i);
  EXPECT_LT(cluster_.coordinator().Snapshot(cluster_.now()).alarms.size(), 8u);
}

TEST(CoordinatorWorkersTest, WaitsForMinWorkersAndSaysSo) {
  CoordinatorHarness cluster(TestConfig(2));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  EXPECT_THAT(cluster.Ask(a).pending_reason,
              HasSubstr("1 more worker to join (1 of --min_workers=2)"));
  const TestWorker b = cluster.Add("b");
  EXPECT_THAT(cluster.Ask(a).pending_reason, HasSubstr("waits for b to ask"));
  EXPECT_TRUE(cluster.Ask(b).grant.has_value());
  EXPECT_TRUE(cluster.Ask(a).grant.has_value()) << "asking earlier counted";
}

TEST(CoordinatorWorkersTest, NamesAWorkerThatHasRegisteredAndDoesNotJoin) {
  CoordinatorHarness cluster(TestConfig(2));
  cluster.Start();
  TestWorker slow = {"slow", 2, {}, "", {}, absl::Seconds(1)};
  ASSERT_OK(cluster.Register(slow));
  const auto waiting = [&] { return cluster.coordinator().Snapshot(cluster.now()).waiting_for; };
  EXPECT_THAT(waiting(), Not(HasSubstr("'slow'"))) << "joining takes a moment";
  for (int i = 0; i < 12; ++i) cluster.Pass(absl::Seconds(1), {slow});
  EXPECT_THAT(waiting(), AllOf(HasSubstr("worker 'slow'"), HasSubstr("12s")));
  ASSERT_OK(cluster.Join(slow));
  EXPECT_THAT(waiting(), Not(HasSubstr("12s")));
}

TEST(CoordinatorWorkersTest, ARobustMeanLetsInAsManyWorkersAsItCombines) {
  Coordinator::Config config = TestConfig();
  config.job.robust_mean = *job::ParseRobustMean("trimmed:1");
  config.job.global_batch_size = 0;
  config.job.batch_size = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  std::vector<TestWorker> workers;
  for (int i = 0; i < job::kMaxRobustContributions; ++i) {
    workers.push_back(cluster.Add(absl::StrCat("w", i)));
  }
  TestWorker late = {"late", 99, {}};
  EXPECT_THAT(cluster.Register(late).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("has 32 workers"), HasSubstr("--robust_mean=trimmed:1"))));
  EXPECT_TRUE(cluster.Register(workers[3]).ok()) << "it is in already";
  ASSERT_TRUE(cluster.coordinator().Leave(workers[5].life, "", {}, cluster.now()).ok());
  EXPECT_TRUE(cluster.Register(late).ok());
}

TEST(CoordinatorWorkersTest, WhoNeverJoinsTakesNoRoomOfARobustMean) {
  Coordinator::Config config = TestConfig();
  config.job.robust_mean = *job::ParseRobustMean("median");
  config.job.global_batch_size = 0;
  config.job.batch_size = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  std::vector<TestWorker> idle;
  for (int i = 0; i < job::kMaxRobustContributions; ++i) {
    idle.push_back({absl::StrCat("idle", i), static_cast<uint64_t>(1000 + i), {}});
    ASSERT_TRUE(cluster.Register(idle.back()).ok());
  }
  std::vector<TestWorker> workers;
  for (int i = 0; i < job::kMaxRobustContributions; ++i) {
    workers.push_back(cluster.Add(absl::StrCat("w", i)));
  }
  EXPECT_THAT(cluster.Join(idle[0]),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("has 32 workers")));
  EXPECT_TRUE(cluster.Join(workers[3]).ok()) << "it is in already";
  ASSERT_TRUE(cluster.coordinator().Leave(workers[5].life, "", {}, cluster.now()).ok());
  EXPECT_TRUE(cluster.Join(idle[0]).ok());
}

TEST(CoordinatorWorkersTest, RoundsOfTooFewForARobustMeanAreAnAlarm) {
  Coordinator::Config config = TestConfig(2);
  config.job.robust_mean = *job::ParseRobustMean("trimmed:1");
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  cluster.RunToEnd({a, b});
  EXPECT_THAT(cluster.observer().alarms,
              Contains(HasSubstr("--robust_mean=trimmed:1 needs 3 contributions per round")));

  config.job.min_workers = 3;
  CoordinatorHarness enough(config);
  enough.Start();
  const std::vector<TestWorker> three = {enough.Add("a"), enough.Add("b"), enough.Add("c")};
  enough.RunToEnd(three);
  EXPECT_THAT(enough.observer().alarms, Not(Contains(HasSubstr("--robust_mean"))));
}

TEST(CoordinatorWorkersTest, MinWorkersIsForTheStartAndKeepWorkersForGoingOn) {
  CoordinatorHarness cluster(TestConfig(2));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  TestWorker b = cluster.Add("b");
  cluster.Ask(a);
  cluster.Ask(b);
  cluster.Pass(absl::Seconds(11), {a});  // b is lost
  const messages::RoundReport report = CoordinatorHarness::ReportOf(*cluster.Ask(a).grant);
  const GrantAnswer next = cluster.Ask(a, report);
  ASSERT_TRUE(next.grant.has_value()) << next.pending_reason;
  EXPECT_EQ(next.grant->round, Round(1));

  ASSERT_TRUE(cluster.coordinator().Leave(a.life, "", {}, cluster.now()).ok());
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
              HasSubstr("waits for 1 more worker to join (0 of --keep_workers=1)"));
  ASSERT_TRUE(cluster.Register(b).ok());
  ASSERT_TRUE(cluster.Join(b).ok());
  EXPECT_TRUE(cluster.Ask(b).grant.has_value());
}

TEST(CoordinatorWorkersTest, JobThatHasFewerThanKeepWorkersWaits) {
  Coordinator::Config config = TestConfig(3);
  config.job.keep_workers = 2;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  const TestWorker c = cluster.Add("c");
  for (const TestWorker& worker : {a, b, c}) cluster.Ask(worker);
  const messages::Grant first = *cluster.Ask(a).grant;
  cluster.Pass(absl::Seconds(11), {a});
  EXPECT_THAT(cluster.Ask(a, CoordinatorHarness::ReportOf(first)).pending_reason,
              HasSubstr("waits for 1 more worker to join (1 of --keep_workers=2)"));
}

TEST(CoordinatorWorkersTest, WorkersThatAreGoneAreShownForAWhileWithTheReason) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker stays = cluster.Add("stays");
  const TestWorker leaves = cluster.Add("leaves");
  cluster.Add("dies");
  ASSERT_TRUE(cluster.coordinator().Leave(leaves.life, "told to stop", {}, cluster.now()).ok());
  TestWorker other{"other", 9, {}};
  ASSERT_TRUE(cluster.Register(other).ok());
  messages::DatasetInfo dataset = TestDataset();
  dataset.fingerprint = "beef";
  ASSERT_FALSE(cluster.Join(other, dataset).ok());
  ASSERT_TRUE(cluster.coordinator().Leave(other.life, "refused", {}, cluster.now()).ok());
  cluster.Pass(absl::Seconds(11), {stays});
  const auto states = [&] {
    std::vector<std::string> lines;
    for (const WorkerSnapshot& worker : cluster.coordinator().Snapshot(cluster.now()).workers) {
      lines.push_back(absl::StrCat(worker.name, " ", worker.state, " ", worker.reason));
    }
    return lines;
  };
  EXPECT_THAT(states(), ElementsAre("stays member ", "leaves left left: told to stop",
                                    HasSubstr("dies expired lease expired: no heartbeat for 11s"),
                                    HasSubstr("other refused data set differs from the job's")));
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).workers[1].ended_age, absl::Seconds(11));

  for (int minute = 0; minute < 61; ++minute) {
    for (int i = 0; i < 10; ++i) cluster.Pass(absl::Seconds(6), {stays});
  }
  EXPECT_THAT(states(), ElementsAre("stays member "));
  for (int i = 0; i < 100; ++i) {
    const TestWorker passing = cluster.Add(absl::StrCat("passing", i));
    ASSERT_TRUE(cluster.coordinator().Leave(passing.life, "", {}, cluster.now()).ok());
    cluster.Pass(absl::Milliseconds(10));
  }
  EXPECT_EQ(states().size(), 1 + 32);
  EXPECT_EQ(states().back(), "passing99 left left");
}

TEST(CoordinatorWorkersTest, WhatIsWaitedForIsToldToTheLogOnce) {
  CoordinatorHarness cluster(TestConfig(2));
  for (int i = 0; i < 10; ++i) cluster.Pass(absl::Seconds(1));
  EXPECT_THAT(cluster.observer().events,
              ElementsAre("cluster waits for the server of shard 0 (missing for 3s) and shard 1 "
                          "(missing for 3s)"));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  cluster.observer().events.clear();
  for (int i = 0; i < 10; ++i) cluster.Pass(absl::Seconds(1), {a});
  EXPECT_THAT(cluster.observer().events,
              ElementsAre("cluster waits for 1 more worker to join (1 of --min_workers=2)"));
  const TestWorker b = cluster.Add("b");
  for (const TestWorker& worker : {a, b}) cluster.Ask(worker);
  cluster.Ask(a, CoordinatorHarness::ReportOf(*cluster.Ask(a).grant));
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
              HasSubstr("waits for b, open for 0s"));
  cluster.observer().events.clear();
  for (int i = 0; i < 30; ++i) cluster.Pass(absl::Seconds(1), {a, b});
  EXPECT_THAT(
      cluster.observer().events,
      ElementsAre("cluster round 0 waits for b, open for 11s; the wait ends in at most 59m49s"));
}

TEST(CoordinatorWorkersTest, AWorkerThatRoundsWaitForIsToldToTheLogOnce) {
  Coordinator::Config config = TestConfig(2);
  config.job.schedule.total_rounds = 100;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker slow = cluster.Add("slow");
  cluster.observer().events.clear();
  for (int round = 0; round < 2 * stragglers::StragglerWatch::kRounds; ++round) {
    for (const TestWorker& worker : {a, slow}) cluster.Ask(worker);
    messages::RoundReport of_a = CoordinatorHarness::ReportOf(*cluster.Ask(a).grant);
    messages::RoundReport of_slow = CoordinatorHarness::ReportOf(*cluster.Ask(slow).grant);
    of_slow.compute = 10 * of_a.compute;
    cluster.Ask(a, of_a);
    cluster.Ask(slow, of_slow);
  }
  EXPECT_THAT(cluster.observer().events,
              Contains(AllOf(HasSubstr("worker 'slow'"), HasSubstr("--balance=speed"))).Times(1));
}

TEST(CoordinatorWorkersTest, ARoundIsHeldUpOnceItTakesMuchLongerThanOthers) {
  CoordinatorHarness cluster(TestConfig(2));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  // Returns whether the round counts as held up `seconds` after it was opened. Then b reports.
  const auto is_held_up_after = [&](int seconds) {
    for (const TestWorker& worker : {a, b}) cluster.Ask(worker);
    cluster.Ask(a, CoordinatorHarness::ReportOf(*cluster.Ask(a).grant));
    for (int i = 0; i < seconds; ++i) cluster.Pass(absl::Seconds(1), {a, b});
    const bool is_held_up = cluster.coordinator().Snapshot(cluster.now()).is_held_up;
    cluster.Ask(b, CoordinatorHarness::ReportOf(*cluster.Ask(b).grant));
    EXPECT_FALSE(cluster.coordinator().Snapshot(cluster.now()).is_held_up);
    return is_held_up;
  };
  EXPECT_FALSE(is_held_up_after(9));
  EXPECT_FALSE(is_held_up_after(17)) << "less than twice as long as the last";
  EXPECT_TRUE(is_held_up_after(40));
}

TEST(CoordinatorWorkersTest, PollingForAHeldCallKeepsNoDeadWorkerAlive) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  cluster.Pass(absl::Seconds(9));
  EXPECT_TRUE(cluster.coordinator().PollGrant(a.life, cluster.now()).ok());
  cluster.Pass(absl::Seconds(2));
  EXPECT_EQ(cluster.coordinator().PollGrant(a.life, cluster.now()).status().code(),
            absl::StatusCode::kAborted);
}

TEST(CoordinatorWorkersTest, WorkerThatWaitsForItsAcknowledgementIsNotBlamed) {
  CoordinatorHarness cluster(TestConfig(2));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  for (const TestWorker& worker : {a, b}) cluster.Ask(worker);
  ASSERT_TRUE(cluster.coordinator().Heartbeat({a.life, 0, 0, "compute"}, cluster.now()).ok());
  ASSERT_TRUE(cluster.coordinator().Heartbeat({b.life, 0, 0, "push"}, cluster.now()).ok());
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_THAT(snapshot.waiting_for, HasSubstr("waits for a, open"));
  EXPECT_EQ(snapshot.open_round->missing.at(1).what, "acknowledgement");
}

TEST(CoordinatorWorkersTest, LostWorkerComesBackUnderItsIdWithANewIncarnation) {
  CoordinatorHarness cluster;
  cluster.Start();
  TestWorker a = cluster.Add("a");
  const messages::WorkerLife old = a.life;
  cluster.Ask(a);
  cluster.Pass(absl::Seconds(11));
  ASSERT_TRUE(cluster.Register(a).ok());
  EXPECT_EQ(a.life.worker, old.worker);
  EXPECT_GT(a.life.incarnation, old.incarnation);
  ASSERT_TRUE(cluster.Join(a).ok());
  EXPECT_EQ(cluster.Ask(a).grant->round, Round(1)) << "round 0 ended with the old life";
}

TEST(CoordinatorWorkersTest, ReconnectKeepsTheGrant) {
  CoordinatorHarness cluster;
  cluster.Start();
  TestWorker a = cluster.Add("a");
  const messages::Grant grant = *cluster.Ask(a).grant;
  const messages::WorkerLife before = a.life;
  ASSERT_TRUE(cluster.Register(a).ok());
  EXPECT_EQ(a.life.incarnation, before.incarnation);
  ASSERT_TRUE(cluster.Join(a).ok());
  EXPECT_EQ(*cluster.Ask(a).grant, grant);
}

TEST(CoordinatorWorkersTest, TakenNameAndOtherDataAreRefused) {
  CoordinatorHarness cluster;
  cluster.Start();
  cluster.Add("a");
  TestWorker impostor{"a", 99, {}};
  EXPECT_EQ(cluster.Register(impostor).status().code(), absl::StatusCode::kAlreadyExists);
  TestWorker b{"b", 2, {}};
  ASSERT_TRUE(cluster.Register(b).ok());
  messages::DatasetInfo other = TestDataset();
  other.fingerprint = "beef";
  const absl::Status refused = cluster.Join(b, other);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), AllOf(HasSubstr("f00d"), HasSubstr("beef")));
  EXPECT_EQ(
      cluster.coordinator().Join(b.life, "0123", TestDataset(), cluster.now()).status().code(),
      absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(cluster.coordinator().RequestGrant(b.life, {}, cluster.now()).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "not joined";
}

TEST(CoordinatorWorkersTest, LateJoinerIsInTheNextRound) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant first = *cluster.Ask(a).grant;
  const TestWorker b = cluster.Add("b");
  EXPECT_FALSE(cluster.Ask(b).grant.has_value());
  const messages::Grant second = *cluster.Ask(a, CoordinatorHarness::ReportOf(first)).grant;
  EXPECT_EQ(second.num_samples, 3);
  EXPECT_EQ(cluster.Ask(b).grant->first_sample, 9);
  EXPECT_EQ(cluster.sent().plans[1].roster.size(), 2);
}

TEST(CoordinatorWorkersTest, LeaveHandsOverItsReport) {
  CoordinatorHarness cluster(TestConfig(1));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant grant = *cluster.Ask(a).grant;
  EXPECT_TRUE(cluster.coordinator()
                  .Leave(a.life, "SIGTERM", CoordinatorHarness::ReportOf(grant), cluster.now())
                  .ok());
  ASSERT_EQ(cluster.observer().rounds.size(), 1);
  EXPECT_FALSE(cluster.observer().rounds[0].committed_short);
  EXPECT_EQ(cluster.observer().rounds[0].samples, 6);
  // The worker may not have received the answer, so it calls again.
  EXPECT_TRUE(cluster.coordinator()
                  .Leave(a.life, "SIGTERM", CoordinatorHarness::ReportOf(grant), cluster.now())
                  .ok());
  EXPECT_EQ(cluster.observer().rounds.size(), 1);
}

TEST(CoordinatorWorkersTest, SurplusWorkersWaitWhenTheBatchIsTooSmall) {
  Coordinator::Config config = TestConfig();
  config.job.global_batch_size = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  EXPECT_TRUE(cluster.Ask(a).grant.has_value());
  cluster.Ask(b);
  cluster.Ask(a, CoordinatorHarness::ReportOf(*cluster.Ask(a).grant));
  EXPECT_EQ(cluster.sent().plans.at(1).roster.size(), 1);
}

// Fixture for workers whose transfers stand still. Three workers have their grants of round 0. A
// lease is 10 s unless a test sets another.
class StalledWorkerTest : public testing::Test {
 protected:
  explicit StalledWorkerTest(absl::Duration lease = TestConfig().lease) : cluster_(Config(lease)) {
    cluster_.Start();
    for (const char* name : {"a", "b", "c"}) workers_.push_back(cluster_.Add(name));
    for (const TestWorker& worker : workers_) cluster_.Ask(worker);
  }

  static Coordinator::Config Config(absl::Duration lease) {
    Coordinator::Config config = TestConfig(/*min_workers=*/3);
    config.job.schedule.total_rounds = 1000;
    config.lease = lease;
    return config;
  }

  // Lets a second pass. Then all workers report their grants, and so request the next ones.
  void FinishRound() {
    cluster_.Pass(absl::Seconds(1));
    std::vector<messages::Grant> grants;
    for (const TestWorker& worker : workers_) grants.push_back(*cluster_.Ask(worker).grant);
    for (size_t i = 0; i < workers_.size(); ++i) {
      cluster_.Ask(workers_[i], CoordinatorHarness::ReportOf(grants[i]));
    }
  }

  // What a worker reports in each of its heartbeats.
  struct Beat {
    std::string activity = "push";
    // Shard whose transfers stand still since the first heartbeat with this shard. -1 means that no
    // transfers stand still.
    int still_shard = -1;
    bool moves = false;
  };
  // Lets `seconds` pass, with a heartbeat of each worker every second.
  void Pass(int seconds, const std::vector<Beat>& beats) {
    for (int second = 0; second < seconds; ++second) {
      cluster_.Pass(absl::Seconds(1));
      for (size_t i = 0; i < beats.size(); ++i) Send(workers_[i], beats[i]);
    }
    cluster_.Pass(absl::ZeroDuration());
  }
  void Send(const TestWorker& worker, const Beat& beat) {
    messages::HeartbeatCall call{worker.life, beat.moves ? ++bytes_ : 7, 0, beat.activity, {}};
    const uint64_t key = worker.life.worker.value();
    if (beat.still_shard < 0) {
      still_since_.erase(key);
    } else {
      const absl::Time since = still_since_.try_emplace(key, cluster_.now()).first->second;
      call.standstill = {beat.still_shard, cluster_.now() - since};
    }
    // The error is Aborted if the life is over.
    cluster_.coordinator().Heartbeat(call, cluster_.now()).status().IgnoreError();
  }
  std::string Alive() {
    std::string names;
    for (const TestWorker& worker : workers_) {
      if (cluster_.coordinator().PollGrant(worker.life, cluster_.now()).ok()) names += worker.name;
    }
    return names;
  }
  std::string WaitingFor() { return cluster_.coordinator().Snapshot(cluster_.now()).waiting_for; }

  CoordinatorHarness cluster_;
  std::vector<TestWorker> workers_;
  std::map<uint64_t, absl::Time> still_since_;
  uint64_t bytes_ = 7;
};

TEST_F(StalledWorkerTest, APathOnWhichNothingMovesIsWaitedForALeaseAndTheUsualTimeOfARound) {
  FinishRound();
  Pass(12, {{}, {"wait"}, {"push", /*still_shard=*/1}});
  EXPECT_EQ(Alive(), "abc");
  EXPECT_THAT(
      WaitingFor(),
      AllOf(StartsWith("round 1 waits for b, c, open for 12s; worker c: no bytes to shard 1 at "
                       "host:1 for 11s"),
            HasSubstr("--advertise")));
  Pass(1, {{}, {"wait"}, {"push", /*still_shard=*/1}});
  EXPECT_EQ(Alive(), "ab") << "that a's push is not acknowledged is not its fault";
  EXPECT_THAT(cluster_.observer().alarms.back(),
              HasSubstr("worker 'c' held up rounds: no bytes to shard 1 at host:1 for 12s"));
  EXPECT_THAT(cluster_.observer().events,
              Contains(HasSubstr(
                  "worker ended name=c worker=3 incarnation=1003 reason=dropped: held up round "
                  "1: no bytes to shard 1 at host:1 for 12s")));
}

TEST_F(StalledWorkerTest, EveryOneThatHoldsUpTheRoundIsDropped) {
  FinishRound();
  Pass(13, {{"pull", /*still_shard=*/0}, {"push", /*still_shard=*/1}, {"compute"}});
  EXPECT_EQ(Alive(), "c");
}

TEST_F(StalledWorkerTest, APathThatIsSlowInItsFirstRoundHasFourTimesAsLong) {
  const std::vector<Beat> beats = {{}, {}, {"pull", /*still_shard=*/1}};
  Pass(40, beats);
  EXPECT_EQ(Alive(), "abc");
  Pass(2, beats);
  EXPECT_EQ(Alive(), "ab");
}

TEST_F(StalledWorkerTest, WhoWasDroppedBeforeItReportedGetsMoreTimeButLetsOthersGoOnFirst) {
  const Beat pushes = {"push", /*still_shard=*/-1, /*moves=*/true};
  const std::vector<Beat> beats = {pushes, pushes, {"pull", /*still_shard=*/1}};
  const auto lasts = [&](int seconds) {
    Pass(seconds, beats);
    EXPECT_EQ(Alive(), "abc") << seconds;
    Pass(2, beats);
    EXPECT_EQ(Alive(), "ab") << seconds;
    still_since_.clear();
  };
  const auto report = [&](int index) {
    const messages::Grant held = *cluster_.Ask(workers_[index]).grant;
    cluster_.Ask(workers_[index], CoordinatorHarness::ReportOf(held));
  };
  const auto come_back_after = [&](int seconds) {
    for (int i : {0, 1}) report(i);
    TestWorker& worker = workers_[2];
    ASSERT_OK(cluster_.Register(worker));
    if (seconds > 0) {
      EXPECT_THAT(cluster_.Join(worker),
                  StatusIs(absl::StatusCode::kUnavailable, HasSubstr("It may join again in")));
      Pass(seconds + 1, {{"wait"}, {"wait"}});
      // These rounds take no time, so that the usual length of a round is 0.
      for (int round = 0; round < 15; ++round) {
        for (int i : {0, 1}) report(i);
      }
      ASSERT_OK(cluster_.Register(worker));
    }
    ASSERT_OK(cluster_.Join(worker));
    cluster_.Ask(worker);
    for (int i : {0, 1}) report(i);
    for (const TestWorker& each : workers_) ASSERT_TRUE(cluster_.Ask(each).grant.has_value());
  };
  lasts(40);
  come_back_after(40);
  lasts(160);
  come_back_after(160);
  lasts(600);
  come_back_after(600);
  lasts(600);
  come_back_after(600);
  // The limit has grown with each stall. A report of the worker resets it.
  FinishRound();
  lasts(11);
  come_back_after(0);
  lasts(42);  // 4 times the lease and a usual round of 0.5 s
}

TEST_F(StalledWorkerTest, OneThatComputesOrMovesBytesIsWaitedFor) {
  FinishRound();
  // Worker a computes now. An earlier standstill of its transfers must not count against it.
  Pass(600, {{"compute", /*still_shard=*/1}, {}, {"pull", /*still_shard=*/-1, /*moves=*/true}});
  EXPECT_EQ(Alive(), "abc");
}

TEST_F(StalledWorkerTest, AStandstillThatIsOverIsForgotten) {
  FinishRound();
  for (int i = 0; i < 5; ++i) {
    Pass(10, {{"wait"}, {"wait"}, {"push", /*still_shard=*/1}});
    Pass(1, {{"wait"}, {"wait"}, {"push"}});
  }
  EXPECT_EQ(Alive(), "abc");
}

TEST_F(StalledWorkerTest, NobodyIsDroppedWhereNobodyGetsOn) {
  FinishRound();
  const Beat still{"push", /*still_shard=*/1};
  Pass(5, {still, still, still});
  EXPECT_TRUE(cluster_.coordinator().Snapshot(cluster_.now()).is_held_up) << "for psctl status";
  Pass(95, {still, still, still});
  EXPECT_EQ(Alive(), "abc");
  EXPECT_THAT(WaitingFor(), HasSubstr("; worker b: no bytes to shard 1 at host:1 for 1m39s"));
  Pass(1, {{"wait"}, still, still});
  EXPECT_EQ(Alive(), "a");
}

TEST_F(StalledWorkerTest, AClientThatTellsOfNoStandstillHasTenMinutesForItsPull) {
  FinishRound();
  Pass(600, {{"compute"}, {}, {"pull"}});
  EXPECT_EQ(Alive(), "abc");
  Pass(10, {{"compute"}, {}, {"pull"}});
  EXPECT_EQ(Alive(), "ab") << "what it pushes may be told once all is taken";
  EXPECT_THAT(cluster_.observer().alarms.back(),
              HasSubstr("worker 'c' held up rounds: it receives no byte of the weights"));
}

TEST_F(StalledWorkerTest, NobodyIsToBlameWhileAServerIsAway) {
  FinishRound();
  const std::vector<Beat> beats = {{"wait"}, {"wait"}, {"push", /*still_shard=*/1}};
  cluster_.silent_shard = 1;
  Pass(100, beats);
  cluster_.silent_shard = -1;
  Pass(11, beats);
  EXPECT_EQ(Alive(), "abc");
  Pass(2, beats);
  EXPECT_EQ(Alive(), "ab");
}

// Fixture with a lease that is shorter than the time after which a server counts as away.
class ShortLeaseStalledWorkerTest : public StalledWorkerTest {
 protected:
  ShortLeaseStalledWorkerTest() : StalledWorkerTest(absl::Seconds(2)) {}
};

TEST_F(ShortLeaseStalledWorkerTest, AServerThatDoesNotRunForAMomentIsNotTheWorkersFault) {
  FinishRound();
  const std::vector<Beat> beats = {{"wait"}, {"wait"}, {"push", /*still_shard=*/1}};
  cluster_.silent_shard = 1;
  Pass(4, beats);
  EXPECT_EQ(Alive(), "abc");
  // The server is heard from again before the worker reports that its bytes move.
  cluster_.silent_shard = -1;
  Pass(2, beats);
  EXPECT_EQ(Alive(), "abc");
  Pass(3, beats);
  EXPECT_EQ(Alive(), "ab") << "the server runs, and it is the path";
}

TEST_F(StalledWorkerTest, AStandstillWhileThisProcessDidNotRunIsNobodysFault) {
  FinishRound();
  Pass(10, {{"wait"}, {"wait"}, {"push", /*still_shard=*/-1, /*moves=*/true}});
  cluster_.coordinator().OnGap(absl::Minutes(1), cluster_.now());
  // The worker has run during the gap, so it reports a standstill that is as long as the gap.
  still_since_[workers_[2].life.worker.value()] = cluster_.now() - absl::Minutes(1);
  Pass(11, {{"wait"}, {"wait"}, {"push", /*still_shard=*/0}});
  EXPECT_EQ(Alive(), "abc");
  Pass(1, {{"wait"}, {"wait"}, {"push", /*still_shard=*/0}});
  EXPECT_EQ(Alive(), "ab") << "what it finds later counts";
  EXPECT_THAT(cluster_.observer().events, Contains(HasSubstr("this process did not run for 1m")));
}

TEST_F(StalledWorkerTest, WorkerWithTwoStallsThatAreOverIsDroppedOnceInATick) {
  FinishRound();
  for (int i : {0, 1}) {
    const messages::Grant held = *cluster_.Ask(workers_[i]).grant;
    cluster_.Ask(workers_[i], CoordinatorHarness::ReportOf(held));
  }
  // The report of c is overdue in one second. The transfer of c is overdue as soon as c reports the
  // standstill.
  Pass(619, {{"wait"}, {"wait"}, {"push"}});
  still_since_[workers_[2].life.worker.value()] = cluster_.now() - absl::Minutes(1);
  Send(workers_[2], {"push", /*still_shard=*/1});
  ASSERT_EQ(Alive(), "abc");
  cluster_.Pass(absl::Seconds(1));
  EXPECT_EQ(Alive(), "ab");
  EXPECT_EQ(std::count_if(cluster_.observer().alarms.begin(), cluster_.observer().alarms.end(),
                          [](const auto& alarm) { return absl::StrContains(alarm, "'c'"); }),
            1);
}

TEST_F(StalledWorkerTest, AStandstillOfAShardThatThereIsNotIsRefused) {
  messages::HeartbeatCall call{workers_[0].life, 0, 0, "push",
                               messages::Standstill{.shard = 2, .age = {}}};
  EXPECT_EQ(cluster_.coordinator().Heartbeat(call, cluster_.now()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Fixture for rounds that a worker holds up. Rounds of a, b and c take two seconds, until one of
// them stops reporting.
class HeldRoundTest : public testing::Test {
 protected:
  // Limit for the report of a worker whose rounds usually take two seconds.
  const absl::Duration kLimit = absl::Minutes(10) + absl::Seconds(20);

  explicit HeldRoundTest(const Coordinator::Config& config = Config()) : cluster_(config) {}
  static Coordinator::Config Config() {
    Coordinator::Config config = TestConfig(3);
    config.job.schedule.total_rounds = 1000;
    return config;
  }
  void SetUp() override {
    cluster_.Start();
    for (const char* name : {"a", "b", "c"}) workers_.push_back(cluster_.Add(name));
    for (int round = 0; round < 4; ++round) RunRound("abc");
  }

  TestWorker& Find(char name) { return workers_[name - 'a']; }
  // Runs a round of two seconds with all the workers whose letters are in `names`.
  void RunRound(const std::string& names) {
    OpenRound(names);
    Pass(absl::Seconds(2));
    Report(names);
  }
  void OpenRound(const std::string& names) {
    for (char name : names) cluster_.Ask(Find(name));
  }
  void Report(const std::string& names) {
    for (char name : names) {
      const GrantAnswer held = cluster_.Ask(Find(name));
      ASSERT_TRUE(held.grant.has_value()) << name << ": " << held.pending_reason;
      cluster_.Ask(Find(name), CoordinatorHarness::ReportOf(*held.grant));
    }
  }
  // Lets `duration` pass. Living workers send heartbeats with activities_ and pushed_, and shard 0
  // reports space_.
  void Pass(absl::Duration duration) {
    for (; duration > absl::ZeroDuration(); duration -= absl::Seconds(2)) {
      cluster_.coordinator().OnPushSpace(0, space_, cluster_.now());
      for (const TestWorker& worker : workers_) {
        const std::string& activity = activities_[worker.name];
        if (Alive().find(worker.name) == std::string::npos) continue;
        ASSERT_OK(cluster_.coordinator()
                      .Heartbeat({worker.life, pushed_[worker.name], 0,
                                  activity.empty() ? "compute" : activity},
                                 cluster_.now())
                      .status());
      }
      cluster_.Pass(std::min(duration, absl::Duration(absl::Seconds(2))));
    }
  }
  std::string Alive() {
    std::string names;
    for (const WorkerSnapshot& worker : Snapshot().workers) {
      if (worker.state == "member" || worker.state == "registered") names += worker.name;
    }
    return names;
  }
  ClusterSnapshot Snapshot() { return cluster_.coordinator().Snapshot(cluster_.now()); }

  CoordinatorHarness cluster_;
  std::vector<TestWorker> workers_;
  std::map<std::string, std::string> activities_;
  std::map<std::string, uint64_t> pushed_;
  sync::PushSpace space_;
};

TEST_F(HeldRoundTest, AMemberThatOnlySaysThatItComputesIsDroppedAfterMuchMoreThanItsUsualTime) {
  Report("ac");
  Pass(kLimit - absl::Minutes(1));
  EXPECT_EQ(Alive(), "abc") << "slow for once";
  EXPECT_EQ(Snapshot().waiting_for,
            "round 4 waits for b, open for 9m20s; the wait ends in at most 1m");
  ASSERT_EQ(Snapshot().open_round->missing.size(), 1);
  EXPECT_EQ(Snapshot().open_round->missing[0].time_left, absl::Minutes(1));
  Pass(absl::Minutes(1));
  EXPECT_EQ(Alive(), "ac");
  EXPECT_THAT(cluster_.observer().alarms.back(),
              AllOf(HasSubstr("worker 'b' held up other workers: it got round 4 10m20s ago and has "
                              "not delivered it; such a round usually takes it 2s"),
                    HasSubstr("may join again in 10m20s"), HasSubstr("--round_timeout=1h")));
  RunRound("ac");
}

TEST_F(HeldRoundTest, WhoWasDroppedComesBackWithMoreTimeOnceOthersHaveGoneOn) {
  Report("ac");
  Pass(kLimit);
  ASSERT_EQ(Alive(), "ac");
  TestWorker& b = Find('b');
  ASSERT_OK(cluster_.Register(b));
  EXPECT_THAT(cluster_.Join(b), StatusIs(absl::StatusCode::kUnavailable,
                                         AllOf(HasSubstr("held up a round"),
                                               HasSubstr("It may join again in 10m20s"))));
  for (int i = 0; i < 311; ++i) RunRound("ac");
  ASSERT_OK(cluster_.Join(b));
  cluster_.Ask(b);
  RunRound("ac");
  Report("ac");
  Pass(absl::Minutes(40));
  EXPECT_EQ(Alive(), "abc") << "four times as long";
  Report("b");
  RunRound("abc");
  EXPECT_EQ(Alive(), "abc");
  Report("ac");
  Pass(absl::Hours(1));
  EXPECT_EQ(Alive(), "ac") << "what took 40 minutes may take longer again, up to the timeout";
  const std::vector<AlarmSnapshot> alarms = Snapshot().alarms;
  ASSERT_EQ(alarms.size(), 1) << "the alarms of one worker are one, although their texts differ";
  EXPECT_EQ(alarms[0].count, 2);
}

TEST_F(HeldRoundTest, WhoMayOnlyWaitBehindItIsNotBlamed) {
  Report("b");
  activities_ = {{"a", "push"}, {"c", "push"}};
  Pass(kLimit);
  EXPECT_EQ(Alive(), "bc") << "c's push comes after that of a";
  Report("c");
  activities_["b"] = "";
  RunRound("bc");
  // If several workers report a false activity, they are dropped one after the other.
  activities_ = {{"b", "push"}, {"c", "push"}};
  TestWorker d = cluster_.Add("d");
  workers_.push_back(d);
  cluster_.Ask(d);
  RunRound("bc");
  Report("d");
  Pass(kLimit);
  EXPECT_EQ(Alive(), "cd");
  Pass(absl::Minutes(55));
  EXPECT_EQ(Alive(), "d") << "its rounds have lasted ten minutes of late";
}

TEST_F(HeldRoundTest, WhoIsSilentHasWhatIsLeftOfItsLease) {
  Report("ac");
  Pass(absl::Seconds(2));
  EXPECT_THAT(Snapshot().waiting_for,
              HasSubstr("round 4 waits for b, open for 2s; the wait ends in at most 10m"));
  for (int i = 0; i < 7; ++i) cluster_.Pass(absl::Seconds(1), {Find('a'), Find('c')});
  EXPECT_EQ(Snapshot().waiting_for,
            "round 4 waits for b, open for 9s; the wait ends in at most 1s");
}

TEST_F(HeldRoundTest, WhereNobodyIsDoneNobodyIsTooSlow) {
  Pass(absl::Hours(30));
  EXPECT_EQ(Alive(), "abc");
  EXPECT_THAT(Snapshot().waiting_for, Not(HasSubstr("at most")));
  Report("a");
  Pass(absl::Seconds(2));
  EXPECT_EQ(Alive(), "a") << "it has waited long enough for those who are";
}

TEST_F(HeldRoundTest, BytesThatMoveGiveItTimeUpToTheTimeout) {
  Report("ac");
  activities_["b"] = "pull";
  const auto move_for = [&](absl::Duration duration) {
    for (; duration > absl::ZeroDuration(); duration -= absl::Seconds(10)) {
      pushed_["b"] += 1000;
      Pass(absl::Seconds(10));
    }
  };
  move_for(absl::Minutes(59));
  EXPECT_EQ(Alive(), "abc");
  move_for(absl::Minutes(1));
  EXPECT_EQ(Alive(), "ac");
}

TEST_F(HeldRoundTest, ANewcomerHasAQuarterOfAnHourForItsFirstRound) {
  TestWorker d = cluster_.Add("d");
  workers_.push_back(d);
  cluster_.Ask(d);
  Report("abc");
  Report("abc");
  Pass(absl::Minutes(14));
  EXPECT_EQ(Alive(), "abcd");
  Pass(absl::Minutes(1) + absl::Seconds(22));
  EXPECT_EQ(Alive(), "abc");
  EXPECT_THAT(cluster_.observer().alarms.back(), HasSubstr("it is its first such round"));
}

TEST_F(HeldRoundTest, TimeWithoutAServerIsNobodysFault) {
  Report("ac");
  Pass(absl::Minutes(9));
  cluster_.silent_shard = 1;
  Pass(absl::Minutes(20));
  cluster_.silent_shard = -1;
  Pass(absl::Minutes(9));
  EXPECT_EQ(Alive(), "abc");
  Pass(absl::Minutes(1) + absl::Seconds(30));
  EXPECT_EQ(Alive(), "ac");
}

TEST_F(HeldRoundTest, EndsLifeWithItsProcessAndNoOther) {
  const messages::WorkerLife former = Find('b').life;
  cluster_.coordinator().OnProcessEnded(
      {former.worker, Incarnation(former.incarnation.value() - 1)}, cluster_.now());
  cluster_.coordinator().OnProcessEnded({WorkerId(77), former.incarnation}, cluster_.now());
  EXPECT_EQ(Alive(), "abc") << "of an older life, and of a worker that is not known";
  cluster_.coordinator().OnProcessEnded(former, cluster_.now());
  EXPECT_EQ(Alive(), "ac");
  EXPECT_THAT(cluster_.coordinator().Heartbeat({former, 0, 0, "compute"}, cluster_.now()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("process")));
  Report("ac");
  RunRound("ac");
  cluster_.coordinator().OnProcessEnded(Find('a').life, cluster_.now());
  cluster_.coordinator().OnProcessEnded(Find('c').life, cluster_.now());
  EXPECT_EQ(Alive(), "c") << "nobody waits for the last member, whose lease stays";
}

// Fixture for pushes that wait for space in a server. a, b and c push their parts of a round. c has
// the space, and the server makes the pushes of a and b wait.
class PushSpaceTest : public HeldRoundTest {
 protected:
  static constexpr int64_t kBucketBytes = 1 << 20;

  explicit PushSpaceTest(const Coordinator::Config& config = Config()) : HeldRoundTest(config) {}
  void SetUp() override {
    HeldRoundTest::SetUp();
    activities_ = {{"a", "push"}, {"b", "push"}, {"c", "push"}};
    space_.unfinished = {Unfinished('c', 3, kBucketBytes / 16)};
    space_.held = {PusherOf('a'), PusherOf('b')};
  }
  sync::Pusher PusherOf(char name) { return {Find(name).life.worker, Find(name).life.incarnation}; }
  sync::UnfinishedPush Unfinished(char name, uint32_t bucket, int64_t received_bytes) {
    return {PusherOf(name), Round(4), bucket, received_bytes, kBucketBytes};
  }
  // Lets `duration` pass, in which the server receives `bytes_per_second` of the push of c.
  void Send(int64_t bytes_per_second, absl::Duration duration) {
    for (; duration > absl::ZeroDuration(); duration -= absl::Seconds(2)) {
      space_.unfinished[0].received_bytes += 2 * bytes_per_second;
      Pass(absl::Seconds(2));
    }
  }
};

TEST_F(PushSpaceTest, WhoseTricklesOthersAreHeldByGoesAndTheyDoNot) {
  // The limit is a minute, plus the share of --round_timeout for the bytes that have come. A
  // sixteenth of the bucket came before. A few bytes come now.
  Send(3, absl::Seconds(286));
  EXPECT_EQ(Alive(), "abc");
  Send(3, absl::Seconds(6));
  EXPECT_EQ(Alive(), "ab");
  EXPECT_THAT(
      cluster_.observer().alarms.back(),
      AllOf(HasSubstr("worker 'c' held up other workers: shard 0 has received 66406 of 1048576 "
                      "bytes of bucket 3 in 4m50s, and other workers wait for the memory that it "
                      "fills; a contribution must be complete within --round_timeout=1h"),
            HasSubstr("may join again in 4m50s")));
  space_ = {};
  Pass(absl::Seconds(2));
  Report("ab");
  activities_.clear();
  RunRound("ab");
  EXPECT_EQ(Alive(), "ab");
}

// The worker sends heartbeats all the time. A slow push may take minutes. If a push stops, its
// worker is dropped after a lease.
TEST_F(PushSpaceTest, DropsPushThatIsAbandonedForALease) {
  const auto pass = [this](absl::Duration duration) {
    for (; duration > absl::ZeroDuration(); duration -= absl::Seconds(2)) {
      space_.unfinished[0].silence += absl::Seconds(2);
      Pass(absl::Seconds(2));
    }
  };
  pass(absl::Seconds(8));
  space_.unfinished[0].silence = absl::ZeroDuration();
  pass(absl::Seconds(8));
  EXPECT_EQ(Alive(), "abc") << "something has come meanwhile";
  pass(absl::Seconds(4));
  EXPECT_EQ(Alive(), "ab");
  EXPECT_THAT(cluster_.observer().alarms.back(),
              AllOf(HasSubstr("worker 'c'"), HasSubstr("65536 of 1048576 bytes of bucket 3"),
                    HasSubstr("--lease=10s")));
}

TEST_F(PushSpaceTest, AWorkerThatKnowsThatItsTransferStandsStillIsNotTakenForOneThatAbandonedIt) {
  space_.unfinished[0].silence = absl::Seconds(20);
  messages::HeartbeatCall call = {Find('c').life, 5, 0, "push", {}};
  call.standstill = messages::Standstill{.shard = 0, .age = absl::Seconds(9)};
  ASSERT_OK(cluster_.coordinator().Heartbeat(call, cluster_.now()).status());
  cluster_.coordinator().OnPushSpace(0, space_, cluster_.now());
  cluster_.Pass(absl::Seconds(1));
  EXPECT_EQ(Alive(), "abc");
}

TEST_F(PushSpaceTest, NobodyIsBlamedForBeingHeldHoweverLong) {
  // The push is complete after 58 minutes. It is slow, but fast enough.
  Send(kBucketBytes * 15 / 16 / (58 * 60), absl::Minutes(58));
  EXPECT_EQ(Alive(), "abc");
  EXPECT_THAT(
      Snapshot().waiting_for,
      AllOf(
          HasSubstr("round 4 waits for c, open for 58m"),
          HasSubstr("worker c has unfinished contributions that fill the memory for contributions "
                    "on shard 0, and other workers wait for that memory: shard 0 has received "),
          HasSubstr("of 1048576 bytes of bucket 3 in 58m")));
  // From now on a and b have the usual limit.
  space_ = {};
  Pass(kLimit - absl::Seconds(4));
  EXPECT_EQ(Alive(), "abc");
  Pass(absl::Seconds(6));
  EXPECT_EQ(Alive(), "bc") << "a comes first in the order of summation";
}

TEST_F(PushSpaceTest, APushThatIsBegunAnewGainsAndLosesNothing) {
  Send(3, absl::Minutes(2));
  const std::vector<sync::UnfinishedPush> before = std::exchange(space_.unfinished, {});
  Pass(absl::Seconds(2));
  space_.unfinished = {Unfinished('c', 3, 0)};
  Pass(absl::Seconds(160));
  EXPECT_EQ(Alive(), "abc") << "what had come counts: a connection may be cut";
  Pass(absl::Seconds(10));
  EXPECT_EQ(Alive(), "ab") << "and so does the time since then";
}

TEST_F(PushSpaceTest, SpaceIsKeptFromOthersNoLongerThanTheTimeoutHoweverManyPushesTakeIt) {
  for (uint32_t bucket = 0; bucket < 59; ++bucket) {
    space_.unfinished = {Unfinished('c', bucket, 0)};
    Send(kBucketBytes / 60, absl::Minutes(1));
    ASSERT_EQ(Alive(), "abc") << bucket;
  }
  space_.unfinished = {Unfinished('c', 60, 0)};
  Send(kBucketBytes / 60, absl::Minutes(1) + absl::Seconds(2));
  EXPECT_EQ(Alive(), "ab");
  EXPECT_THAT(cluster_.observer().alarms.back(),
              AllOf(HasSubstr("worker 'c' held up other workers: its unfinished contributions fill "
                              "the memory for contributions on shard 0, and other workers have "
                              "waited for that memory for 1h (shard 0 has received "),
                    HasSubstr("may join again in 1h.")));
}

TEST_F(PushSpaceTest, WhereSpaceIsLeftARoundDoesNotWaitForATrickleEither) {
  space_.held.clear();
  Report("ab");
  pushed_["c"] = 1;
  for (int i = 0; i < 29; ++i) {
    pushed_["c"] += 1'000'000;  // c claims that it has sent these bytes
    Send(3, absl::Seconds(10));
  }
  EXPECT_EQ(Alive(), "ab");
  EXPECT_THAT(cluster_.observer().alarms.back(),
              AllOf(HasSubstr("of bucket 3"), Not(HasSubstr("space"))));
}

TEST_F(PushSpaceTest, ALifeThatIsOverIsNotWaitedFor) {
  space_.unfinished[0].pusher.incarnation = Incarnation(1);
  Pass(absl::Minutes(5));
  EXPECT_EQ(Alive(), "abc");
  cluster_.coordinator().OnPushSpace(7, space_, cluster_.now());  // there is no shard 7
}

// Servers report once a second. If a push is complete between two reports, no report says so.
TEST_F(PushSpaceTest, RoundsThatAreShortDoNotAddUp) {
  const absl::Time begin = cluster_.now();
  for (int64_t round = 4; cluster_.now() - begin < 2 * absl::Hours(1); ++round) {
    space_.unfinished = {{PusherOf('c'), Round(round), 3, kBucketBytes / 2, kBucketBytes}};
    Pass(absl::Seconds(10));
    ASSERT_EQ(Alive(), "abc") << cluster_.now() - begin;
    Report("abc");
    OpenRound("abc");
  }
}

TEST_F(PushSpaceTest, WhatTheServerHeldHasItsTimeAfterwards) {
  space_.unfinished = {Unfinished('c', 1, kBucketBytes / 2)};
  space_.held = {PusherOf('a')};
  Pass(absl::Seconds(2));
  space_.unfinished = {Unfinished('b', 2, 0)};
  space_.held = {PusherOf('a'), PusherOf('c')};
  Send(kBucketBytes / (59 * 60), absl::Minutes(59));
  ASSERT_EQ(Alive(), "abc");
  space_.unfinished = {Unfinished('c', 2, kBucketBytes / 4)};
  space_.held = {PusherOf('a')};
  Send(kBucketBytes / 100, absl::Seconds(62));
  EXPECT_EQ(Alive(), "abc");
}

TEST_F(PushSpaceTest, ACallThatIsBegunAnewAndHeldHasItsTimeAfterwards) {
  space_.unfinished = {Unfinished('c', 1, 1024)};
  space_.held = {PusherOf('a')};
  Pass(absl::Seconds(2));
  space_.unfinished = {Unfinished('b', 2, kBucketBytes / 8)};
  space_.held = {PusherOf('a'), PusherOf('c')};
  Pass(absl::Minutes(2));
  space_.unfinished = {Unfinished('c', 1, 1024)};
  space_.held = {PusherOf('a')};
  Pass(absl::Seconds(50));
  EXPECT_EQ(Alive(), "abc");
  Pass(absl::Seconds(20));
  EXPECT_EQ(Alive(), "ab");
}

// The network path from all workers to shard 1 passes the first bytes and then no more.
TEST_F(PushSpaceTest, NobodyIsDroppedWhereNobodyGetsOn) {
  space_ = {
      .unfinished = {Unfinished('a', 3, 1024), Unfinished('b', 3, 1024), Unfinished('c', 3, 1024)},
      .held = {}};
  const auto pass = [this](absl::Duration duration, std::string_view still) {
    for (; duration > absl::ZeroDuration(); duration -= absl::Seconds(1)) {
      cluster_.coordinator().OnPushSpace(1, space_, cluster_.now());
      for (const TestWorker& worker : workers_) {
        if (Alive().find(worker.name) == std::string::npos) continue;
        messages::HeartbeatCall call = {worker.life, 5, 0, "push", {}};
        if (still.find(worker.name) != std::string_view::npos) {
          call.standstill = messages::Standstill{.shard = 1, .age = absl::Seconds(9)};
        }
        ASSERT_OK(cluster_.coordinator().Heartbeat(call, cluster_.now()).status());
      }
      cluster_.Pass(absl::Seconds(1));
    }
  };
  pass(absl::Minutes(5), "abc");
  EXPECT_EQ(Alive(), "abc");
  EXPECT_THAT(Snapshot().waiting_for, Not(HasSubstr("at most 0")));
  space_.unfinished = {Unfinished('c', 3, 1024)};
  pass(absl::Seconds(2), "c");
  EXPECT_EQ(Alive(), "ab") << "others get on";
}

class ShortLeasePushSpaceTest : public PushSpaceTest {
 protected:
  ShortLeasePushSpaceTest() : PushSpaceTest(ShortConfig()) {}
  static Coordinator::Config ShortConfig() {
    Coordinator::Config config = Config();
    config.lease = absl::Seconds(2);
    return config;
  }
};

TEST_F(ShortLeasePushSpaceTest, AServerThatDoesNotRunForAMomentIsNotTheWorkersFault) {
  Report("ab");
  space_ = {.unfinished = {Unfinished('c', 3, 1024)}, .held = {}};
  const auto step = [this](bool runs) {
    if (runs) cluster_.coordinator().OnPushSpace(1, space_, cluster_.now());
    for (const TestWorker& worker : workers_) {
      if (Alive().find(worker.name) == std::string::npos) continue;
      const std::string activity = worker.name == "c" ? "push" : "wait";
      ASSERT_OK(
          cluster_.coordinator().Heartbeat({worker.life, 0, 0, activity}, cluster_.now()).status());
    }
    cluster_.silent_shard = runs ? -1 : 1;
    cluster_.Pass(absl::Milliseconds(500));
  };
  // The limit is a minute plus 3.5 s. The 3.5 s are the share of --round_timeout for the 1024 bytes
  // that have come.
  for (int i = 0; i < 122; ++i) step(true);
  for (int i = 0; i < 9; ++i) step(false);
  EXPECT_EQ(Alive(), "abc") << "it may be whole by now";
  for (int i = 0; i < 120; ++i) step(true);
  EXPECT_EQ(Alive(), "abc") << "it could not come";
  for (int i = 0; i < 12; ++i) step(true);
  EXPECT_EQ(Alive(), "ab");
}

class ShortPushSpaceTest : public PushSpaceTest {
 protected:
  ShortPushSpaceTest() : PushSpaceTest(ShortConfig()) {}
  static Coordinator::Config ShortConfig() {
    Coordinator::Config config = Config();
    config.lease = absl::Seconds(3);
    config.round_timeout = absl::Seconds(15);
    return config;
  }
};

TEST_F(ShortPushSpaceTest, OfAShortTimeoutTheHonestHaveAllOfItAfterwards) {
  activities_["c"] = "compute";
  Send(3, absl::Seconds(14));
  EXPECT_EQ(Alive(), "abc");
  Send(3, absl::Seconds(4));
  EXPECT_EQ(Alive(), "ab");
  space_ = {};
  Pass(absl::Seconds(12));
  EXPECT_EQ(Alive(), "ab");
}

TEST_F(ShortPushSpaceTest, ThoseWhoLieInTheSameWayGoOneAfterTheOther) {
  space_.held = {PusherOf('a')};
  space_.unfinished = {Unfinished('b', 2, 100), Unfinished('c', 3, 100)};
  Pass(absl::Seconds(18));
  EXPECT_EQ(Alive(), "a");
  space_ = {};
  Pass(absl::Seconds(2));
  Report("a");
  EXPECT_EQ(Alive(), "a");
}

TEST(HeldJobTest, AMemberThatDoesNotAskForWorkIsDropped) {
  Coordinator::Config config = TestConfig(2);
  config.job.keep_workers = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  EXPECT_THAT(cluster.Ask(a).pending_reason, HasSubstr("waits for b to ask for work"));
  for (int i = 0; i < 124; ++i) cluster.Pass(absl::Seconds(5), {a, b});
  EXPECT_TRUE(cluster.coordinator().IsMember(a.life));
  EXPECT_FALSE(cluster.coordinator().IsMember(b.life));
  EXPECT_THAT(cluster.observer().alarms.back(),
              HasSubstr("worker 'b' held up other workers: it has not asked for work for 10m20s"));
}

TEST(HeldJobTest, TheBoundOfStalenessWaitsNoLongerThanTheTimeout) {
  Coordinator::Config config = TestConfig(2);
  config.job.mode = job::Mode::kAsync;
  config.job.max_rounds_ahead = 1;
  config.job.schedule.total_rounds = 100;
  config.round_timeout = absl::Minutes(1);
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker fast = cluster.Add("fast");
  const TestWorker liar = cluster.Add("liar");
  GrantAnswer answer = cluster.Ask(fast);
  ASSERT_TRUE(cluster.Ask(liar).grant.has_value());
  answer = cluster.Ask(fast);
  while (answer.grant.has_value()) {
    cluster.Pass(absl::Seconds(1), {fast, liar});
    answer = cluster.Ask(fast, CoordinatorHarness::ReportOf(*answer.grant));
  }
  EXPECT_THAT(answer.pending_reason, HasSubstr("waits for liar"));
  for (int i = 0; i < 6; ++i) cluster.Pass(absl::Seconds(10), {fast, liar});
  EXPECT_FALSE(cluster.coordinator().IsMember(liar.life));
  EXPECT_TRUE(cluster.Ask(fast).grant.has_value());
}

TEST(CallersTest, AWorkerThatCallsBeforeTheServersAreThereIsShownAndToldOfTheEnd) {
  CoordinatorHarness cluster;
  Coordinator& coordinator = cluster.coordinator();
  ASSERT_TRUE(coordinator.OnShardAttached(0, 2, 70, 0, "host:0", cluster.now()).ok());
  TestWorker a = {.name = "a", .instance_id = 1, .life = {}};
  TestWorker dead = {.name = "dead", .instance_id = 2, .life = {}};
  EXPECT_EQ(cluster.Register(a).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(cluster.Register(dead).status().code(), absl::StatusCode::kUnavailable);
  const ClusterSnapshot before = coordinator.Snapshot(cluster.now());
  ASSERT_EQ(before.workers.size(), 2);
  EXPECT_EQ(before.workers[0].name, "a");
  EXPECT_EQ(before.workers[0].state, "waiting");
  EXPECT_THAT(before.workers[0].reason, HasSubstr("waits for the server of shard 1"));

  coordinator.RequestStop("psctl stop", cluster.now());
  EXPECT_TRUE(coordinator.Ending().has_value());
  cluster.Pass(absl::Seconds(1));
  EXPECT_FALSE(coordinator.outcome().has_value());
  EXPECT_THAT(coordinator.Snapshot(cluster.now()).waiting_for,
              HasSubstr("waits for a, dead to call again and learn that the job is over"));
  const absl::Status told = cluster.Register(a).status();
  EXPECT_TRUE(IsJobOver(told)) << told;
  EXPECT_THAT(std::string(told.message()), HasSubstr("psctl stop"));
  cluster.Pass(absl::Seconds(1));
  EXPECT_FALSE(coordinator.outcome().has_value()) << "the other one has not called again";
  cluster.Pass(kCallerPatience);
  EXPECT_TRUE(coordinator.outcome().has_value());
}

TEST(CallersTest, WhoGetsInIsAWorkerLikeOthers) {
  CoordinatorHarness cluster;
  TestWorker a = {.name = "a", .instance_id = 1, .life = {}};
  EXPECT_FALSE(cluster.Register(a).ok());
  cluster.Start();
  EXPECT_TRUE(cluster.Register(a).ok());
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  ASSERT_EQ(snapshot.workers.size(), 1);
  EXPECT_EQ(snapshot.workers[0].state, "registered");
}

// A process that was killed and started again need not wait until the lease of the previous process
// is over.
TEST(CoordinatorWorkersTest, ANameIsFreeOnceTheConnectionOfItsHolderIsClosed) {
  CoordinatorHarness cluster(TestConfig(2));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  cluster.Ask(a);
  const std::optional<messages::Grant> grant = cluster.Ask(b).grant;
  ASSERT_TRUE(grant.has_value());
  const auto call_of = [](const std::string& name, uint64_t instance_id) {
    messages::RegisterCall call;
    call.name = name;
    call.instance_id = instance_id;
    return call;
  };
  messages::RegisterCall again = call_of("a", 99);
  EXPECT_EQ(cluster.coordinator().PeerOfHolder(again), std::nullopt) << "not heard of by address";
  again.holder_is_gone = true;
  EXPECT_EQ(cluster.coordinator().Register(again, cluster.now()).status().code(),
            absl::StatusCode::kAlreadyExists);

  cluster.coordinator().NoteConnection(a.life, "ipv4:10.0.0.1:4242");
  EXPECT_EQ(cluster.coordinator().PeerOfHolder(again), "ipv4:10.0.0.1:4242");
  EXPECT_EQ(cluster.coordinator().PeerOfHolder(call_of("a", a.instance_id)), std::nullopt);
  EXPECT_EQ(cluster.coordinator().PeerOfHolder(call_of("c", 99)), std::nullopt);
  again.holder_is_gone = false;
  EXPECT_EQ(cluster.coordinator().Register(again, cluster.now()).status().code(),
            absl::StatusCode::kAlreadyExists);
  again.holder_is_gone = true;
  EXPECT_EQ(cluster.coordinator().Register(again, cluster.now()).status().code(),
            absl::StatusCode::kAlreadyExists)
      << "it may come over another connection";
  cluster.Pass(absl::Seconds(3), {b});
  cluster.Heartbeat(a);
  cluster.Pass(absl::Seconds(3), {b});
  EXPECT_EQ(cluster.coordinator().Register(again, cluster.now()).status().code(),
            absl::StatusCode::kAlreadyExists);
  cluster.Pass(absl::Seconds(1), {b});
  const absl::StatusOr<messages::Registration> admitted =
      cluster.coordinator().Register(again, cluster.now());
  ASSERT_TRUE(admitted.ok()) << admitted.status();
  EXPECT_EQ(admitted->life.worker, a.life.worker);
  EXPECT_GT(admitted->life.incarnation, a.life.incarnation);
  EXPECT_TRUE(absl::IsAborted(cluster.coordinator().CheckLife(a.life)));

  // The open round does not wait for the process that is gone.
  cluster.Ask(b, CoordinatorHarness::ReportOf(*grant));
  ASSERT_EQ(cluster.observer().rounds.size(), 1);
  EXPECT_TRUE(cluster.observer().rounds[0].committed_short);
}

// If the servers exited too early, the process would look for them for ever.
TEST(CoordinatorWorkersTest, AProcessThatWaitsForItsNameWhileTheJobEndsLearnsOfIt) {
  CoordinatorHarness cluster;
  cluster.Start();
  cluster.Add("a");  // then the process of this worker ends
  TestWorker again{"a", 2, {}};
  cluster.Pass(absl::Seconds(9));
  EXPECT_EQ(cluster.Register(again).status().code(), absl::StatusCode::kAlreadyExists);
  cluster.coordinator().RequestStop("maintenance", cluster.now());
  cluster.Pass(absl::Seconds(2));  // the lease is over
  EXPECT_FALSE(cluster.coordinator().outcome().has_value());
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
              HasSubstr("waits for a to call again and learn that the job is over"));
  EXPECT_TRUE(cluster.Register(again).ok());
}

// The process of the dropped worker goes on, and calls again after a pause.
TEST(CoordinatorWorkersTest, WhoIsDroppedShortlyBeforeTheEndLearnsOfIt) {
  CoordinatorHarness cluster;
  cluster.Start();
  TestWorker a = cluster.Add("a");
  cluster.coordinator().EvictWorkers([](absl::string_view) { return true; }, "test", cluster.now());
  cluster.coordinator().RequestStop("maintenance", cluster.now());
  cluster.Pass(absl::Seconds(1));
  EXPECT_FALSE(cluster.coordinator().outcome().has_value());
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
              HasSubstr("waits for a to come back"));
  ASSERT_TRUE(cluster.Register(a).ok());
  ASSERT_TRUE(cluster.Join(a).ok());
  const std::optional<messages::Grant> grant = cluster.Ask(a).grant;
  ASSERT_TRUE(grant.has_value());
  EXPECT_EQ(grant->kind, messages::Grant::Kind::kDone);
  EXPECT_TRUE(cluster.coordinator().Leave(a.life, "done", std::nullopt, cluster.now()).ok());
  EXPECT_TRUE(cluster.coordinator().outcome().has_value());
}

TEST(CoordinatorWorkersTest, WhoWasDroppedAndDoesNotCallIsNotWaitedForLong) {
  CoordinatorHarness cluster;
  cluster.Start();
  cluster.Add("a");
  cluster.coordinator().EvictWorkers([](absl::string_view) { return true; }, "test", cluster.now());
  cluster.coordinator().RequestStop("maintenance", cluster.now());
  cluster.Pass(absl::Seconds(4));
  EXPECT_TRUE(cluster.coordinator().outcome().has_value());
}

TEST(CoordinatorWorkersTest, AJobThatIsOverNeedsNoLeaseToEndToSaySo) {
  CoordinatorHarness cluster;
  cluster.Start();
  cluster.Add("a");
  TestWorker again{"a", 2, {}};
  EXPECT_EQ(cluster.Register(again).status().code(), absl::StatusCode::kAlreadyExists);
  cluster.coordinator().RequestStop("maintenance", cluster.now());
  const absl::Status told = cluster.Register(again).status();
  EXPECT_TRUE(IsJobOver(told)) << told;
  EXPECT_THAT(Message(told), HasSubstr("stopped: maintenance"));
  cluster.Pass(absl::Seconds(11));
  EXPECT_TRUE(cluster.coordinator().outcome().has_value()) << "nobody is waited for";
  TestWorker late{"late", 3, {}};
  EXPECT_TRUE(IsJobOver(cluster.Register(late).status())) << "the servers go";
}

}  // namespace
}  // namespace lodestar::coordinator
