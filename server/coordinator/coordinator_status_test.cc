// SPDX-License-Identifier: Apache-2.0

// Tests of the coordinator's status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;

// Adds a worker that trains two rounds in two seconds. It has the grant of the next round.
TestWorker WorkTwoRounds(CoordinatorHarness& cluster) {
  TestWorker worker = cluster.Add("a");
  messages::Grant grant = *cluster.Ask(worker).grant;
  for (int round = 0; round < 2; ++round) {
    cluster.Pass(absl::Seconds(1), {worker});
    grant = *cluster.Ask(worker, CoordinatorHarness::ReportOf(grant)).grant;
  }
  return worker;
}

TEST(CoordinatorStatusTest, SnapshotTellsRatesSharesAndEta) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  messages::Grant grant = *cluster.Ask(a).grant;
  for (int round = 0; round < 3; ++round) {
    cluster.Pass(absl::Seconds(1), {a});
    grant = *cluster.Ask(a, CoordinatorHarness::ReportOf(grant)).grant;
  }
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_EQ(snapshot.state, "training");
  EXPECT_EQ(snapshot.round, 4);
  EXPECT_NEAR(snapshot.samples_per_second, 6.0, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(*snapshot.eta), 1.0, 0.01);
  ASSERT_EQ(snapshot.workers.size(), 1);
  EXPECT_EQ(snapshot.workers[0].rounds_completed, 3);
  EXPECT_NEAR(snapshot.workers[0].compute_share, 0.75, 1e-9);
  EXPECT_EQ(snapshot.workers[0].state, "member");
  EXPECT_EQ(snapshot.shards[1].state, "serving");
  EXPECT_EQ(snapshot.loss.train, 2.0);
  EXPECT_EQ(snapshot.loss.train_round, Round(2));
  EXPECT_FALSE(snapshot.loss.heldout.has_value());
}

TEST(CoordinatorStatusTest, ExposedCommunicationIsAMeanOfTheLastRounds) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  messages::Grant grant = *cluster.Ask(a).grant;
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).workers.at(0).exposed_per_round,
            absl::ZeroDuration());
  for (const double exposed : {0.3, 0.1}) {
    messages::RoundReport report = CoordinatorHarness::ReportOf(grant);
    report.compute = absl::Seconds(1) - absl::Seconds(exposed);
    report.communication = absl::Seconds(exposed);
    report.wait = absl::ZeroDuration();
    cluster.Pass(absl::Seconds(1), {a});
    grant = *cluster.Ask(a, report).grant;
  }
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  const WorkerSnapshot& worker = snapshot.workers.at(0);
  const double mean = (0.9 * 0.3 + 0.1) / 1.9;
  EXPECT_NEAR(absl::ToDoubleSeconds(worker.exposed_per_round), mean, 1e-9);
  EXPECT_NEAR(worker.communication_share, mean, 1e-9) << "rounds of a second";
}

// The first round takes long. The summary of the second round must not show this. A moving average
// would show it for many rounds.
TEST(CoordinatorStatusTest, ARoundIsSummedUpWithItsOwnTimesAlone) {
  CoordinatorHarness cluster(TestConfig(/*min_workers=*/2));
  cluster.Start();
  const std::vector<TestWorker> workers = {cluster.Add("a"), cluster.Add("b")};
  for (int round = 0; round < 2; ++round) {
    for (const TestWorker& worker : workers) cluster.Ask(worker);  // all ask before the round opens
    cluster.Pass(absl::Seconds(1), workers);
    for (const size_t i : {0, 1}) {
      messages::RoundReport report = CoordinatorHarness::ReportOf(*cluster.Ask(workers[i]).grant);
      report.compute = absl::Seconds(round == 0 ? 50 : 3);
      report.communication = absl::Seconds(i == 0 ? 1 : 2);
      report.wait = absl::Seconds(i == 0 ? 1 : -1);
      cluster.Ask(workers[i], report);
    }
  }
  const std::vector<rounds::RoundSummary>& summaries = cluster.observer().rounds;
  ASSERT_EQ(summaries.size(), 2);
  EXPECT_EQ(summaries[0].worker_times.compute, absl::Seconds(50));
  EXPECT_EQ(summaries[1].worker_times.compute, absl::Seconds(3));
  EXPECT_EQ(summaries[1].worker_times.communication, absl::Milliseconds(1500));
  EXPECT_EQ(summaries[1].worker_times.wait, absl::Milliseconds(500));
}

TEST(CoordinatorStatusTest, AWorkerTellsHowLongItTookUntilItsFirstContribution) {
  CoordinatorHarness cluster;
  cluster.Start();
  const auto worker = [&] { return cluster.coordinator().Snapshot(cluster.now()).workers.at(0); };
  messages::RegisterCall call;
  call.name = "a";
  call.instance_id = 5;
  call.process.age = absl::Seconds(3);
  const auto life = cluster.coordinator().Register(call, cluster.now());
  ASSERT_TRUE(life.ok()) << life.status();
  const TestWorker a = {"a", 5, life->life};
  cluster.Pass(absl::Seconds(2), {a});
  ASSERT_TRUE(cluster.Join(a).ok());
  messages::Grant grant = *cluster.Ask(a).grant;
  EXPECT_EQ(worker().start_to_contribution, std::nullopt);
  cluster.Pass(absl::Seconds(1), {a});
  grant = *cluster.Ask(a, CoordinatorHarness::ReportOf(grant)).grant;
  const auto expect_start = [&] {
    EXPECT_EQ(worker().start_to_contribution, absl::Seconds(6));
    EXPECT_EQ(worker().registration_to_contribution, absl::Seconds(3));
  };
  expect_start();
  cluster.Pass(absl::Seconds(1), {a});
  cluster.Ask(a, CoordinatorHarness::ReportOf(grant));
  expect_start();

  // A new life of the same process keeps these two times. For a life of another process, they are
  // measured again.
  ASSERT_TRUE(cluster.coordinator().Leave(a.life, "gone", {}, cluster.now()).ok());
  call.process.age = std::nullopt;
  ASSERT_TRUE(cluster.coordinator().Register(call, cluster.now()).ok());
  expect_start();
  ASSERT_TRUE(cluster.coordinator()
                  .Leave(cluster.coordinator().Register(call, cluster.now())->life, "gone", {},
                         cluster.now())
                  .ok());
  call.instance_id = 6;
  ASSERT_TRUE(cluster.coordinator().Register(call, cluster.now()).ok());
  EXPECT_EQ(worker().start_to_contribution, std::nullopt);
}

TEST(CoordinatorStatusTest, SamplesThatWereHandedOutAreTrainedOnUnderWayOrLost) {
  Coordinator::Config config = TestConfig(/*min_workers=*/2);
  config.job.keep_workers = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  cluster.Ask(a);
  const messages::Grant of_b = *cluster.Ask(b).grant;
  const messages::Grant of_a = *cluster.Ask(a).grant;
  const auto expect_samples = [&](int64_t all, int64_t trained, int64_t untrained) {
    const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
    EXPECT_EQ(snapshot.samples, all);
    EXPECT_EQ(snapshot.trained_samples, trained);
    EXPECT_EQ(snapshot.untrained_samples, untrained);
  };
  expect_samples(6, 0, 0);
  messages::RoundReport part = CoordinatorHarness::ReportOf(of_a);
  part.num_samples = 1;  // of 3, because the worker was told to stop
  EXPECT_TRUE(cluster.coordinator().Leave(a.life, "told to stop", part, cluster.now()).ok());
  expect_samples(6, 0, 2);
  cluster.Ask(b, CoordinatorHarness::ReportOf(of_b));
  expect_samples(12, 4, 2);
  ASSERT_TRUE(cluster.coordinator().Leave(b.life, "lost", {}, cluster.now()).ok());
  expect_samples(12, 4, 8);
}

TEST(CoordinatorStatusTest, AProcessThatTakesPartAgainHearsOfTheRoundsBeforeAndTellsWhatItLacks) {
  CoordinatorHarness cluster(TestConfig());
  cluster.Start();
  const TestWorker first = cluster.Add("a");
  const messages::Grant grant = *cluster.Ask(first).grant;
  cluster.Ask(first, CoordinatorHarness::ReportOf(grant));
  ASSERT_TRUE(cluster.coordinator().Leave(first.life, "killed", {}, cluster.now()).ok());
  TestWorker second = {"a", first.instance_id + 1, {}};
  const auto registration = cluster.Register(second);
  ASSERT_TRUE(registration.ok()) << registration.status();
  EXPECT_EQ(registration->rounds_completed, 1);
  ASSERT_TRUE(cluster.Join(second).ok());
  messages::RoundReport report = CoordinatorHarness::ReportOf(*cluster.Ask(second).grant);
  report.lost_residual_rounds = 1;
  const auto lost = [&] {
    return cluster.coordinator().Snapshot(cluster.now()).workers.at(0).residuals_lost;
  };
  EXPECT_EQ(lost(), 0);
  cluster.Ask(second, report);
  cluster.Ask(second, report);  // the report is repeated
  EXPECT_EQ(lost(), 1);
}

TEST(CoordinatorStatusTest, MetricsAreMeansOverThoseWhoTellThem) {
  CoordinatorHarness cluster(TestConfig(/*min_workers=*/2));
  cluster.Start();
  const std::vector<TestWorker> workers = {cluster.Add("a"), cluster.Add("b")};
  std::vector<messages::Grant> grants;
  for (const TestWorker& worker : workers) cluster.Ask(worker);
  for (const TestWorker& worker : workers) grants.push_back(*cluster.Ask(worker).grant);
  messages::RoundReport report = CoordinatorHarness::ReportOf(grants[0]);
  report.metrics = {{"both", 1.0}, {"a", 5.0}};
  cluster.Ask(workers[0], report);
  cluster.Ask(workers[0], report);  // the report is repeated
  report = CoordinatorHarness::ReportOf(grants[1]);
  report.metrics = {{"both", 2.0}, {"bad", std::nan("")}};
  cluster.Ask(workers[1], report);
  const rounds::RoundSummary& round = cluster.observer().rounds.at(0);
  EXPECT_THAT(round.metrics, ElementsAre(Pair("a", 5.0), Pair("both", 1.5)));
  EXPECT_EQ(round.metrics_dropped, 1);
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_EQ(snapshot.metrics.at("both").value, 1.5);
  EXPECT_EQ(snapshot.metrics_dropped, 1);
}

TEST(CoordinatorStatusTest, AFloodOfNamesLeavesTheStatusReadable) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker worker = cluster.Add("worker");
  for (int i = 0; i < 300; ++i) {
    messages::RegisterCall call;
    call.name = absl::StrCat("flood-", i);
    call.instance_id = 1000 + i;
    ASSERT_TRUE(cluster.coordinator().Register(call, cluster.now()).ok());
  }
  const ClusterSnapshot flooded = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_EQ(flooded.workers.size(), 101);
  EXPECT_EQ(flooded.workers[0].name, "worker");
  EXPECT_EQ(flooded.num_workers_not_shown, 200);
  for (int i = 0; i < 3; ++i) cluster.Pass(absl::Seconds(6), {worker});
  const ClusterSnapshot over = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_EQ(over.workers.size(), 33) << "all ended at once, and 256 of them are remembered";
  EXPECT_EQ(over.workers[0].state, "member");
  EXPECT_EQ(over.num_workers_not_shown, 256 - 32);
}

TEST(CoordinatorStatusTest, AJobWhoseWorkerIsGoneHasNoSpeedAndNoEnd) {
  CoordinatorHarness cluster;
  cluster.Start();
  WorkTwoRounds(cluster);
  cluster.Pass(absl::Seconds(5));  // the worker is silent, but its lease is not over
  EXPECT_LT(cluster.coordinator().Snapshot(cluster.now()).samples_per_second, 2.0);
  cluster.Pass(absl::Seconds(6));
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_EQ(snapshot.state, "waiting_for_workers");
  EXPECT_EQ(snapshot.samples_per_second, 0.0);
  EXPECT_FALSE(snapshot.eta.has_value());
}

TEST(CoordinatorStatusTest, AJobWhoseServerIsAwayHasNoSpeedAndNoEnd) {
  CoordinatorHarness cluster;
  cluster.Start();
  WorkTwoRounds(cluster);
  cluster.coordinator().OnShardDisconnected(1, 71, cluster.now());
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_EQ(snapshot.state, "waiting_for_servers");
  EXPECT_EQ(snapshot.samples_per_second, 0.0);
  EXPECT_FALSE(snapshot.eta.has_value());
}

TEST(CoordinatorStatusTest, AJournalThatCannotBeWrittenIsWhatIsWaitedFor) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = WorkTwoRounds(cluster);
  Coordinator& coordinator = cluster.coordinator();
  EXPECT_EQ(coordinator.Snapshot(cluster.now()).state, "training");
  coordinator.RequestStop("enough", cluster.now());
  coordinator.OnJournalState(1, {.trouble = "disk full"}, cluster.now());
  ClusterSnapshot snapshot = coordinator.Snapshot(cluster.now());
  EXPECT_EQ(snapshot.state, "waiting_for_journal");
  EXPECT_EQ(snapshot.waiting_for, "the journal of shard 1 cannot be written: disk full");
  EXPECT_TRUE(snapshot.is_held_up);
  EXPECT_FALSE(snapshot.eta.has_value());
  ASSERT_EQ(snapshot.requests.size(), 1);
  EXPECT_EQ(snapshot.requests[0].waiting_for, snapshot.waiting_for);
  EXPECT_EQ(snapshot.requests[0].waiting_for_undated, "the journal of shard 1 cannot be written");
  EXPECT_THAT(snapshot.requests[0].way_out, HasSubstr("disk"));
  cluster.Pass(absl::Seconds(10), {a});
  EXPECT_EQ(coordinator.Heartbeat({a.life, 0, 0, ""}, cluster.now())->waiting_for,
            "the journal of shard 1 cannot be written");
  coordinator.OnJournalState(0, {.trouble = "no answer"}, cluster.now());
  EXPECT_EQ(
      coordinator.Snapshot(cluster.now()).waiting_for,
      "the journal of shard 0 cannot be written: no answer and the journal of shard 1 cannot be "
      "written: disk full");

  // While the server of shard 1 is away, the state of its journal is not known.
  coordinator.OnShardDisconnected(1, 71, cluster.now());
  EXPECT_THAT(
      coordinator.Snapshot(cluster.now()).waiting_for,
      StartsWith(
          "the journal of shard 0 cannot be written: no answer; waits for the server of shard 1"));
  coordinator.OnJournalState(0, {}, cluster.now());
  EXPECT_THAT(coordinator.Snapshot(cluster.now()).waiting_for,
              StartsWith("waits for the server of shard 1"));
}

TEST(CoordinatorStatusTest, TheJournalOfAnOnlyServerNeedsNoNumber) {
  Coordinator::Config config = TestConfig();
  config.num_shards = 1;
  CoordinatorHarness cluster(config);
  cluster.Start();
  cluster.coordinator().OnJournalState(0, {.trouble = "disk full"}, cluster.now());
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
            "the journal cannot be written: disk full");
}

TEST(CoordinatorStatusTest, EachShardHasTheReplicaThatItsServerTellsOf) {
  CoordinatorHarness cluster;
  cluster.Start();
  Coordinator& coordinator = cluster.coordinator();
  const uint64_t memory_version = coordinator.memory_version();
  coordinator.OnJournalState(1, {.replica = "backup:1 has everything"}, cluster.now());
  coordinator.OnJournalState(2, {.replica = "of no shard"}, cluster.now());
  EXPECT_EQ(coordinator.memory_version(), memory_version) << "nothing of it is kept";
  ClusterSnapshot snapshot = coordinator.Snapshot(cluster.now());
  EXPECT_EQ(snapshot.shards[0].journal_replica, "");
  EXPECT_EQ(snapshot.shards[1].journal_replica, "backup:1 has everything");
  coordinator.OnShardDisconnected(1, 71, cluster.now());
  EXPECT_EQ(coordinator.Snapshot(cluster.now()).shards[1].journal_replica, "");
}

TEST(CoordinatorStatusTest, AnAlarmAboutAJournalIsOverOnceItsServerTellsOfNoTrouble) {
  CoordinatorHarness cluster;
  cluster.Start();
  Coordinator& coordinator = cluster.coordinator();
  const auto over = [&] { return coordinator.Snapshot(cluster.now()).alarms.at(0).over_age; };
  coordinator.OnShardEvent(1, shards::ShardAlarm{"disk full"}, cluster.now());
  coordinator.OnJournalState(1, {}, cluster.now());
  EXPECT_FALSE(over().has_value()) << "it has been said before";
  cluster.Pass(absl::Seconds(4));
  coordinator.OnJournalState(1, {.trouble = "disk full"}, cluster.now());
  coordinator.OnJournalState(0, {}, cluster.now());
  EXPECT_FALSE(over().has_value());
  coordinator.OnJournalState(1, {}, cluster.now());
  EXPECT_EQ(over(), absl::ZeroDuration());
}

TEST(CoordinatorStatusTest, AnAlarmAboutAServerThatNeverEndsStays) {
  CoordinatorHarness cluster;
  cluster.Start();
  Coordinator& coordinator = cluster.coordinator();
  coordinator.OnShardEvent(1, shards::ShardAlarm{"no key", shards::ShardAlarm::Ends::kNever},
                           cluster.now());
  cluster.Pass(absl::Seconds(4));
  coordinator.OnJournalState(1, {}, cluster.now());
  const std::vector<AlarmSnapshot> alarms = coordinator.Snapshot(cluster.now()).alarms;
  ASSERT_EQ(alarms.size(), 1);
  EXPECT_EQ(alarms[0].text, "shard 1: no key");
  EXPECT_FALSE(alarms[0].over_age.has_value());
}

TEST(CoordinatorStatusTest, AnAlarmAboutCertificatesIsOverOnceTheNextComes) {
  CoordinatorHarness cluster;
  cluster.Start();
  Coordinator& coordinator = cluster.coordinator();
  const auto tell = [&](int shard, const std::string& text) {
    cluster.Pass(absl::Seconds(4));
    coordinator.OnShardEvent(
        shard, shards::ShardAlarm{text, shards::ShardAlarm::Ends::kWithNextOfCertificate},
        cluster.now());
    return coordinator.Snapshot(cluster.now()).alarms;
  };
  EXPECT_EQ(tell(1, "").size(), 0);
  tell(1, "a.pem is empty");
  std::vector<AlarmSnapshot> alarms = tell(1, "a.pem ends");
  ASSERT_EQ(alarms.size(), 1);
  EXPECT_EQ(alarms[0].text, "shard 1: a.pem ends");
  EXPECT_FALSE(alarms[0].over_age.has_value());
  EXPECT_FALSE(tell(0, "").at(0).over_age.has_value()) << "that is another server";
  alarms = tell(1, "");
  ASSERT_EQ(alarms.size(), 1);
  EXPECT_EQ(alarms[0].over_age, absl::ZeroDuration());
}

TEST(CoordinatorStatusTest, AnAlarmAboutASilentServerIsOverOnceItIsBack) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  cluster.silent_shard = 1;
  for (int i = 0; i < 5; ++i) cluster.Pass(absl::Seconds(5), {a});
  const auto alarms = [&] { return cluster.coordinator().Snapshot(cluster.now()).alarms; };
  ASSERT_EQ(alarms().size(), 1);
  EXPECT_THAT(alarms()[0].text, HasSubstr("does not answer"));
  EXPECT_FALSE(alarms()[0].over_age.has_value());
  cluster.silent_shard = -1;
  cluster.Pass(absl::Seconds(1), {a});
  EXPECT_EQ(alarms()[0].over_age, absl::ZeroDuration());
}

TEST(CoordinatorStatusTest, AStopTellsForHowLongItWaitsForWhomAndWhatCanBeDone) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  ASSERT_TRUE(cluster.Ask(a).grant.has_value());
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).requests, IsEmpty());
  cluster.coordinator().RequestStop("enough", cluster.now());
  cluster.Pass(absl::Seconds(3), {a});
  ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  ASSERT_EQ(snapshot.requests.size(), 1);
  EXPECT_EQ(snapshot.requests[0].what, "stop");
  EXPECT_EQ(snapshot.requests[0].reason, "enough");
  EXPECT_EQ(snapshot.requests[0].age, absl::Seconds(3));
  EXPECT_EQ(snapshot.requests[0].waiting_for,
            "round 0 waits for a, open for 3s; the wait ends in at most 57s");
  EXPECT_EQ(snapshot.requests[0].waiting_for_undated, "round 0 waits for a");
  EXPECT_THAT(snapshot.requests[0].way_out, HasSubstr("--lease=10s"));
  cluster.coordinator().OnShardDisconnected(1, 71, cluster.now());
  snapshot = cluster.coordinator().Snapshot(cluster.now());
  EXPECT_THAT(snapshot.requests.at(0).waiting_for_undated,
              HasSubstr("waits for the server of shard 1"));
  EXPECT_THAT(snapshot.requests[0].way_out, HasSubstr("start it again"));
}

TEST(CoordinatorStatusTest, AStopThatWaitsForAServerNamesTheJournalsOnlyIfAllServersHaveOne) {
  for (const uint64_t first_segment : {0, 1}) {
    CoordinatorHarness cluster(TestConfig());
    cluster.Start();
    Coordinator& coordinator = cluster.coordinator();
    for (int shard = 0; shard < 2; ++shard) {
      ASSERT_TRUE(coordinator
                      .OnShardAttached(shard, 2, 70 + shard, coordinator.server_incarnation(),
                                       absl::StrCat("host:", shard), cluster.now(),
                                       {.first_segment = first_segment})
                      .ok());
    }
    coordinator.RequestStop("enough", cluster.now());
    coordinator.OnShardDisconnected(1, 71, cluster.now());
    const ClusterSnapshot snapshot = coordinator.Snapshot(cluster.now());
    ASSERT_EQ(snapshot.requests.size(), 1);
    EXPECT_EQ(absl::StrContains(snapshot.requests[0].way_out, "journal"), first_segment != 0)
        << snapshot.requests[0].way_out;
  }
}

TEST(CoordinatorStatusTest, ACheckpointThatWasAskedForShowsUntilItIsThere) {
  Coordinator::Config config = TestConfig();
  config.checkpoint_dir = "ckpt";
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant grant = *cluster.Ask(a).grant;
  ASSERT_TRUE(cluster.coordinator().RequestCheckpoint(cluster.now()).ok());
  cluster.Pass(absl::Seconds(2), {a});
  ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  ASSERT_EQ(snapshot.requests.size(), 1);
  EXPECT_EQ(snapshot.requests[0].what, "checkpoint");
  EXPECT_EQ(snapshot.requests[0].age, absl::Seconds(2));
  EXPECT_EQ(snapshot.requests[0].waiting_for_undated, "round 0 waits for a");
  cluster.Ask(a, CoordinatorHarness::ReportOf(grant));
  snapshot = cluster.coordinator().Snapshot(cluster.now());
  ASSERT_EQ(snapshot.requests.size(), 1);
  EXPECT_EQ(snapshot.requests[0].waiting_for, "waits for the servers to write the checkpoint");
  cluster.FinishSave();
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).requests, IsEmpty());
}

}  // namespace
}  // namespace lodestar::coordinator
