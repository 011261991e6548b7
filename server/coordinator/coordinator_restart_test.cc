// SPDX-License-Identifier: Apache-2.0

// Tests of checkpoints, stops, lost shards and restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/runtime/status_hints.h"
#include "common/testing/status_matchers.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_state_json.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

Coordinator::Config SavingConfig(int64_t every = 2) {
  Coordinator::Config config = TestConfig();
  config.checkpoint_dir = "ckpt";
  config.checkpoint_schedule.every_rounds = every;
  config.job.eval_every = 3;
  config.job.schedule.total_rounds = 8;
  return config;
}

// Runs one worker until it gets the grant of `round`. Returns this grant.
messages::Grant RunUntil(CoordinatorHarness& cluster, const TestWorker& worker, int64_t round) {
  GrantAnswer answer = cluster.Ask(worker);
  while (answer.grant.has_value() && answer.grant->round.value() < round) {
    answer = cluster.Ask(worker, CoordinatorHarness::ReportOf(*answer.grant));
  }
  EXPECT_TRUE(answer.grant.has_value()) << answer.pending_reason;
  return answer.grant.value_or(messages::Grant{});
}

params::Layout OneTensor(const std::vector<int64_t>& shape) {
  params::TensorSpec tensor;
  tensor.name = "w";
  tensor.shape = shape;
  return *params::Layout::FromTensors({tensor});
}

RestoreChoice ChoiceOf(const checkpoints::CheckpointRecord& record) {
  const auto state = CoordinatorStateFromJson(CoordinatorStateToJson(record.state));
  EXPECT_TRUE(state.ok()) << state.status();
  return {.source = shards::CheckpointSource{record.final_directory},
          .state = *state,
          .server_incarnation = 5,
          .alarm = ""};
}

TEST(CoordinatorRestartTest, SaveComesBeforeTheRoundItBelongsTo) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.Start();
  RunUntil(cluster, cluster.Add("a"), 2);
  EXPECT_THAT(cluster.sent().commands,
              ElementsAre("assign 1000", "members 1", "open 0", "close 0 by 1", "open 1",
                          "close 1 by 1", "save 2", "open 2"));
  EXPECT_EQ(cluster.sent().save_directories.at(0), "ckpt/round-00000002.1000-1.tmp");
  cluster.FinishSave();
  const checkpoints::CheckpointRecord& record = cluster.store().published.at(0);
  EXPECT_EQ(record.final_directory, "ckpt/round-00000002");
  EXPECT_THAT(record.manifest_parts, ElementsAre("part 0", "part 1"));
  EXPECT_EQ(record.state.ledger.next_round, 2);
  EXPECT_EQ(record.state.ledger.next_sample, 12);
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).last_checkpoint->path,
            "ckpt/round-00000002");
}

TEST(CoordinatorRestartTest, WhatItGoesOnFromIsAsOldAsItWasWritten) {
  CoordinatorHarness cluster(SavingConfig());
  const shards::CheckpointSource source = {
      .directory = "ckpt/round-00000002", .bytes = 77, .age = absl::Hours(3)};
  cluster.Start(
      {.source = source, .state = checkpoints::CoordinatorState{}, .server_incarnation = 5});
  const absl::Time start = cluster.now();
  cluster.Pass(absl::Minutes(2));
  const std::optional<CheckpointSnapshot> last =
      cluster.coordinator().Snapshot(cluster.now()).last_checkpoint;
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->bytes, 77);
  EXPECT_GE(last->age, absl::Hours(3) + (cluster.now() - start));
  EXPECT_LT(last->age, absl::Hours(4));
}

TEST(CoordinatorRestartTest, AServerThatGoesAwayWhileItLoadsIsWaitedForByName) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.AttachAll();
  Coordinator& coordinator = cluster.coordinator();
  coordinator.OnRestoreChosen(
      RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 1000}, cluster.now());
  coordinator.OnShardDisconnected(1, 71, cluster.now());
  TestWorker worker{"a", 1, {}};
  const absl::Status refused = cluster.Register(worker).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(Message(refused), HasSubstr("waits for the server of shard 1"));
  // The server of shard 1 may report that it has loaded before it attaches again, or afterwards.
  // One report is enough.
  cluster.LoadAll();
  EXPECT_EQ(coordinator.phase(), CoordinatorPhase::kLoading);
  ASSERT_TRUE(coordinator.OnShardAttached(1, 2, 71, 1000, "host:1", cluster.now()).ok());
  EXPECT_EQ(coordinator.phase(), CoordinatorPhase::kRunning);
}

TEST(CoordinatorRestartTest, ByTimeACheckpointComesBetweenTheRoundsWhereItIsDue) {
  Coordinator::Config config = SavingConfig(0);
  config.checkpoint_schedule.interval = absl::Minutes(5);
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  messages::Grant grant = *cluster.Ask(a).grant;
  EXPECT_THAT(cluster.sent().save_directories, ::testing::IsEmpty()) << "no round is complete";
  grant = *cluster.Ask(a, CoordinatorHarness::ReportOf(grant)).grant;
  EXPECT_THAT(cluster.sent().save_directories, ElementsAre("ckpt/round-00000001.1000-1.tmp"));
  cluster.FinishSave();
  for (int i = 0; i < 2; ++i) cluster.Pass(absl::Seconds(5), {a});
  EXPECT_EQ(cluster.sent().save_directories.size(), 1) << "round 1 is open";
  grant = *cluster.Ask(a, CoordinatorHarness::ReportOf(grant)).grant;
  EXPECT_EQ(cluster.sent().save_directories.size(), 2);
  EXPECT_EQ(cluster.sent().save_directories.back(), "ckpt/round-00000002.1000-2.tmp");
  cluster.FinishSave();
  for (int i = 0; i < 3; ++i) cluster.Pass(absl::Seconds(5), {a});
  RunUntil(cluster, a, 5);
  EXPECT_EQ(cluster.sent().save_directories.size(), 2) << "the next pause is twice as long";
}

TEST(CoordinatorRestartTest, JournalThatWouldCostNextToNothingIsSuggestedOnce) {
  Coordinator::Config config = SavingConfig(0);
  config.job.schedule.total_rounds = 20;
  config.checkpoint_schedule = {.interval = absl::Minutes(5), .max_cost = 0.5};
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  messages::Grant grant = *cluster.Ask(a).grant;
  size_t num_saves = 0;
  for (int round = 0; round < 10; ++round) {
    cluster.Pass(absl::Seconds(6), {a});
    grant = *cluster.Ask(a, CoordinatorHarness::ReportOf(grant)).grant;
    if (cluster.sent().save_directories.size() == num_saves) continue;
    num_saves = cluster.sent().save_directories.size();
    cluster.FinishSave();
  }
  EXPECT_GE(num_saves, 3);
  EXPECT_EQ(std::count_if(cluster.observer().events.begin(), cluster.observer().events.end(),
                          [](const std::string& event) {
                            return absl::StrContains(event, "--durability=journal");
                          }),
            1);
}

TEST(CoordinatorRestartTest, ByTimeACheckpointOfAnAsynchronousJobWaitsForTheFirstUpdate) {
  Coordinator::Config config = SavingConfig(0);
  config.job.mode = job::Mode::kAsync;
  config.checkpoint_schedule.interval = absl::Minutes(5);
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant grant = *cluster.Ask(a).grant;
  cluster.Pass(absl::Seconds(5), {a});
  EXPECT_THAT(cluster.sent().save_directories, ::testing::IsEmpty());
  cluster.Ask(a, CoordinatorHarness::ReportOf(grant));
  EXPECT_EQ(cluster.sent().save_directories.size(), 1);
}

TEST(CoordinatorRestartTest, AJournalThatIsTooLongBringsACheckpointOutOfTurnOnce) {
  Coordinator::Config config = SavingConfig(/*every=*/0);
  config.journal_limit_bytes = 1000;
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  Coordinator& coordinator = cluster.coordinator();
  RunUntil(cluster, a, 1);
  coordinator.OnJournalState(1, {.bytes = 1000}, cluster.now());
  RunUntil(cluster, a, 2);
  EXPECT_THAT(cluster.sent().save_directories, ::testing::IsEmpty());
  coordinator.OnJournalState(1, {.bytes = 1001}, cluster.now());
  coordinator.OnJournalState(1, {.bytes = 2000}, cluster.now());
  RunUntil(cluster, a, 3);
  EXPECT_THAT(cluster.sent().save_directories, ElementsAre("ckpt/round-00000003.1000-1.tmp"));
  EXPECT_THAT(cluster.observer().events,
              Contains(AllOf(HasSubstr("shard 1"), HasSubstr("--journal_limit=1.0 kB"))));
  cluster.FinishSave();
  coordinator.OnJournalState(
      1, {.bytes = 1500},
      cluster.now());  // the save took long, so the journal is still too long
  RunUntil(cluster, a, 4);
  EXPECT_EQ(cluster.sent().save_directories.size(), 1);
  coordinator.OnJournalState(1, {.bytes = 10}, cluster.now());
  coordinator.OnJournalState(1, {.bytes = 1500}, cluster.now());
  RunUntil(cluster, a, 5);
  EXPECT_EQ(cluster.sent().save_directories.size(), 2);
}

TEST(CoordinatorRestartTest, ResumedJobGivesTheGrantsOfAnUninterruptedOne) {
  Coordinator::Config pair = SavingConfig();
  pair.job.min_workers = 2;
  CoordinatorHarness whole(pair);
  whole.Start();
  const std::vector<messages::Grant> expected = whole.RunToEnd({whole.Add("a"), whole.Add("b")});

  CoordinatorHarness first(SavingConfig());
  first.Start();
  RunUntil(first, first.Add("x"), 4);
  const checkpoints::CheckpointRecord record = [&] {
    first.FinishSave();
    return first.store().published.back();
  }();
  CoordinatorHarness second(pair);
  second.Start(ChoiceOf(record));
  const std::vector<messages::Grant> resumed = second.RunToEnd({second.Add("a"), second.Add("b")});

  const int64_t round = record.round.value();
  ASSERT_GT(round, 0);
  ASSERT_EQ(second.observer().restored.size(), 1);
  EXPECT_EQ(second.observer().restored[0].next_round, record.round);
  EXPECT_EQ(second.observer().restored[0].trained_samples,
            first.observer().rounds[round - 1].total_samples);
  EXPECT_FALSE(second.observer().restored[0].is_evaluated);
  EXPECT_EQ(second.observer().restored[0].loss, record.state.progress.loss);
  std::vector<messages::Grant> rest;
  for (messages::Grant grant : expected) {
    if (grant.round.value() >= round) rest.push_back(grant);
  }
  ASSERT_EQ(resumed.size(), rest.size());
  for (size_t i = 0; i < rest.size(); ++i) {
    messages::Grant got = resumed[i];
    got.view = rest[i].view;
    EXPECT_EQ(got, rest[i]) << "grant " << i << " of round " << rest[i].round;
  }
  EXPECT_EQ(second.observer().rounds.back().total_samples, 8 * 6);
}

TEST(CoordinatorRestartTest, RunningJobThatStartsAnewGivesItsWorkersALeaseToComeBack) {
  Coordinator::Config pair = SavingConfig();
  pair.job.min_workers = 2;
  CoordinatorHarness cluster(pair);
  cluster.Start();
  TestWorker a = cluster.Add("a");
  TestWorker b = cluster.Add("b");
  cluster.Ask(a);
  ASSERT_TRUE(cluster.Ask(b).grant.has_value());
  cluster.coordinator().OnShardDisconnected(0, 70, cluster.now());
  ASSERT_TRUE(cluster.coordinator().OnShardAttached(0, 2, 88, 0, "host:9", cluster.now()).ok());
  EXPECT_FALSE(cluster.coordinator().Snapshot(cluster.now()).open_round.has_value())
      << "it is void";
  cluster.coordinator().OnRestoreChosen(
      RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 5000}, cluster.now());
  cluster.LoadAll();
  ASSERT_TRUE(cluster.Register(a).ok());
  ASSERT_TRUE(cluster.Join(a).ok());
  EXPECT_THAT(cluster.Ask(a).pending_reason, ::testing::HasSubstr("1 of --min_workers=2"));
  cluster.Pass(absl::Seconds(9), {a});
  EXPECT_FALSE(cluster.Ask(a).grant.has_value());
  cluster.Pass(absl::Seconds(2), {a});
  EXPECT_TRUE(cluster.Ask(a).grant.has_value()) << "b has had its time";
}

TEST(CoordinatorRestartTest, ResumeBeginsNewLivesButKeepsIds) {
  CoordinatorHarness first(SavingConfig());
  first.Start();
  const TestWorker a = first.Add("a");
  const TestWorker b = first.Add("b");
  RunUntil(first, a, 0);
  checkpoints::CheckpointRecord record;
  record.final_directory = "ckpt/round-00000000";
  record.state.server_incarnation = 1000;
  record.state.membership = {.names = {{"a", WorkerId(1)}, {"b", WorkerId(2)}},
                             .last_id = WorkerId(2),
                             .last_incarnation = Incarnation(1002),
                             .view = ViewId(2)};
  CoordinatorHarness second(SavingConfig());
  second.Start(ChoiceOf(record));
  EXPECT_GT(second.coordinator().server_incarnation(), 1000);
  EXPECT_EQ(second.coordinator().RequestGrant(a.life, {}, second.now()).status().code(),
            absl::StatusCode::kAborted);
  const TestWorker again = second.Add("b");
  EXPECT_EQ(again.life.worker, b.life.worker);
  EXPECT_GT(again.life.incarnation, b.life.incarnation);
}

TEST(CoordinatorRestartTest, OnlyOneCheckpointAtATime) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  RunUntil(cluster, a, 4);
  EXPECT_EQ(cluster.sent().save_directories.size(), 1);
  const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
  ASSERT_EQ(snapshot.alarms.size(), 1);
  EXPECT_THAT(snapshot.alarms[0].text, HasSubstr("was skipped"));
}

TEST(CoordinatorRestartTest, FailedCheckpointIsAnAlarmAndTrainingGoesOn) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  messages::Grant grant = RunUntil(cluster, a, 2);
  cluster.coordinator().OnShardEvent(
      0, shards::ShardSaved{1000, "ckpt/round-00000002.1000-1.tmp", std::string("part")},
      cluster.now());
  cluster.coordinator().OnShardEvent(1,
                                     shards::ShardSaved{1000, "ckpt/round-00000002.1000-1.tmp",
                                                        absl::ResourceExhaustedError("disk full")},
                                     cluster.now());
  EXPECT_THAT(cluster.store().discarded, ElementsAre("ckpt/round-00000002.1000-1.tmp"));
  EXPECT_TRUE(cluster.store().published.empty());
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).alarms.at(0).text,
            "checkpoint ckpt/round-N: shard 1: disk full")
      << "one alarm, whatever the round";
  EXPECT_FALSE(cluster.coordinator().Snapshot(cluster.now()).alarms.at(0).over_age.has_value());
  grant = RunUntil(cluster, a, 4);
  EXPECT_EQ(cluster.sent().save_directories.size(), 2);
  cluster.FinishSave();
  EXPECT_TRUE(cluster.coordinator().Snapshot(cluster.now()).alarms.at(0).over_age.has_value())
      << "the disk has room again";
}

TEST(CoordinatorRestartTest, AlarmOfTheCheckpointFolderEndsWithTheNextCheckpoint) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const auto alarm = [&] { return cluster.coordinator().Snapshot(cluster.now()).alarms.at(0); };
  int64_t round = 0;
  for (const absl::string_view text : {"cannot remove x", "cannot remove x", ""}) {
    RunUntil(cluster, a, round += 2);
    cluster.FinishSave(std::string(text));
    EXPECT_EQ(alarm().text, "cannot remove x");
    EXPECT_EQ(alarm().over_age.has_value(), text.empty());
  }
  EXPECT_EQ(alarm().count, 2);
}

TEST(CoordinatorRestartTest, SlowCheckpointsAreAlarmsUntilOneIsFast) {
  Coordinator::Config config = SavingConfig(0);
  config.checkpoint_schedule.interval = absl::Minutes(1);
  config.stop_timeout = absl::Seconds(2);
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const auto num_alarms = [&cluster] {
    const ClusterSnapshot snapshot = cluster.coordinator().Snapshot(cluster.now());
    return std::count_if(snapshot.alarms.begin(), snapshot.alarms.end(),
                         [](const AlarmSnapshot& alarm) { return !alarm.over_age.has_value(); });
  };
  RunUntil(cluster, a, 1);
  cluster.Pass(absl::Seconds(5), {a});
  cluster.FinishSave();
  ASSERT_EQ(num_alarms(), 2);
  EXPECT_THAT(
      cluster.observer().alarms,
      UnorderedElementsAre(AllOf(HasSubstr("--stop_timeout=2s"), HasSubstr("--stop_timeout=16s")),
                           HasSubstr("--checkpoint_interval=1m")));
  ASSERT_OK(cluster.coordinator().RequestCheckpoint(cluster.now()));
  RunUntil(cluster, a, 2);
  cluster.FinishSave();
  EXPECT_EQ(num_alarms(), 0);
}

TEST(CoordinatorRestartTest, RequestedCheckpointIsTakenBetweenRounds) {
  CoordinatorHarness cluster(SavingConfig(0));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant grant = RunUntil(cluster, a, 1);
  const auto ticket = cluster.coordinator().RequestCheckpoint(cluster.now());
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  EXPECT_TRUE(cluster.sent().save_directories.empty()) << "round 1 is open";
  cluster.Ask(a, CoordinatorHarness::ReportOf(grant));
  EXPECT_FALSE(cluster.coordinator().CheckpointOutcome(*ticket).has_value());
  cluster.FinishSave();
  const auto outcome = cluster.coordinator().CheckpointOutcome(*ticket);
  ASSERT_TRUE(outcome.has_value() && outcome->ok());
  EXPECT_EQ((*outcome)->path, "ckpt/round-00000002");
  EXPECT_EQ((*outcome)->round, Round(2));
}

TEST(CoordinatorRestartTest, NoCheckpointIsAwaitedOfAServerThatIsAway) {
  CoordinatorHarness cluster(SavingConfig(0));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  RunUntil(cluster, a, 1);
  const auto asked_before = cluster.coordinator().RequestCheckpoint(cluster.now());
  ASSERT_TRUE(asked_before.ok()) << asked_before.status();
  cluster.coordinator().OnShardDisconnected(1, 71, cluster.now());
  const auto outcome = cluster.coordinator().CheckpointOutcome(*asked_before);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->status().code(), absl::StatusCode::kUnavailable);
  const auto asked_after = cluster.coordinator().RequestCheckpoint(cluster.now());
  EXPECT_EQ(asked_after.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(asked_after.status().message()),
              HasSubstr("waits for the server of shard 1"));
}

TEST(CoordinatorRestartTest, OneAskedForBehindAnotherEndsWithTheServerThatItNeeds) {
  CoordinatorHarness cluster(SavingConfig(0));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant grant = RunUntil(cluster, a, 1);
  const auto first = cluster.coordinator().RequestCheckpoint(cluster.now());
  cluster.Ask(a, CoordinatorHarness::ReportOf(grant));
  for (int shard = 0; shard < 2; ++shard) {
    cluster.coordinator().OnShardEvent(
        shard,
        shards::ShardSaved{1000, cluster.sent().save_directories.back(), std::string("part")},
        cluster.now());
  }
  const auto second = cluster.coordinator().RequestCheckpoint(cluster.now());
  ASSERT_TRUE(first.ok() && second.ok());
  cluster.coordinator().OnShardDisconnected(1, 71, cluster.now());
  EXPECT_FALSE(cluster.coordinator().CheckpointOutcome(*first).has_value()) << "all have saved";
  ASSERT_TRUE(cluster.coordinator().CheckpointOutcome(*second).has_value());
  EXPECT_EQ(cluster.coordinator().CheckpointOutcome(*second)->status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(CoordinatorRestartTest, AJobStoppedWhileAServerIsLostEndsWhateverElseIsAskedFor) {
  CoordinatorHarness cluster(SavingConfig(0));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  RunUntil(cluster, a, 1);
  cluster.coordinator().OnShardDisconnected(1, 71, cluster.now());
  ASSERT_TRUE(cluster.coordinator().OnShardAttached(1, 2, 88, 0, "host:9", cluster.now()).ok());
  cluster.coordinator().OnShardDisconnected(1, 88, cluster.now());
  ASSERT_EQ(cluster.coordinator().phase(), CoordinatorPhase::kAwaitingShards);
  cluster.coordinator().RequestStop("psctl stop", cluster.now());
  EXPECT_EQ(cluster.coordinator().RequestCheckpoint(cluster.now()).status().code(),
            absl::StatusCode::kUnavailable);
  for (int i = 0; i < 5; ++i) cluster.Pass(absl::Seconds(5));
  EXPECT_TRUE(cluster.coordinator().outcome().has_value());
}

TEST(CoordinatorRestartTest, RequestsAreRefusedWhereNothingCanBeSaved) {
  CoordinatorHarness nowhere;
  nowhere.Start();
  EXPECT_THAT(
      std::string(nowhere.coordinator().RequestCheckpoint(nowhere.now()).status().message()),
      HasSubstr("--checkpoint_dir"));
  CoordinatorHarness loading(SavingConfig());
  EXPECT_EQ(loading.coordinator().RequestCheckpoint(loading.now()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(CoordinatorRestartTest, LastCheckpointComesAfterTheFinalEvaluation) {
  CoordinatorHarness cluster(SavingConfig(0));
  cluster.Start();
  cluster.RunToEnd({cluster.Add("a")});
  ASSERT_EQ(cluster.store().published.size(), 1);
  const checkpoints::CheckpointRecord& record = cluster.store().published[0];
  EXPECT_EQ(record.round, Round(8));
  EXPECT_EQ(record.state.ledger.final_evaluation_round, 8);
  EXPECT_EQ(cluster.sent().commands.back(), "published 8");

  CoordinatorHarness resumed(SavingConfig(0));
  resumed.Start(ChoiceOf(record));
  EXPECT_EQ(resumed.coordinator().phase(), CoordinatorPhase::kDone) << "no round is left to do";
  EXPECT_TRUE(resumed.sent().save_directories.empty());
  EXPECT_EQ(resumed.Ask(resumed.Add("a")).grant->kind, messages::Grant::Kind::kDone);
}

TEST(CoordinatorRestartTest, AJobThatIsCompleteAlreadySaysSoAndWhatFollows) {
  const auto events_of = [](int64_t rounds_done, bool exit_when_done) {
    Coordinator::Config config = SavingConfig(0);
    config.exit_when_done = exit_when_done;
    CoordinatorHarness cluster(config);
    RestoreChoice choice{.source = shards::CheckpointSource{"ckpt/round"},
                         .state = checkpoints::CoordinatorState{}};
    choice.state->ledger.next_round = rounds_done;
    cluster.Start(choice);
    return cluster.observer().events;
  };
  EXPECT_THAT(
      events_of(8, false),
      Contains(
          AllOf(HasSubstr("already complete, at round 8 of 8. To continue, give a larger --rounds"),
                HasSubstr("--resume=never"), HasSubstr("until psctl stop"))));
  EXPECT_THAT(events_of(8, true), Contains(HasSubstr("ends now, because of --exit_when_done")));
  EXPECT_THAT(events_of(7, false), Not(Contains(HasSubstr("complete"))));
}

TEST(CoordinatorRestartTest, StopEndsTheJobAfterTheOpenRoundWithACheckpoint) {
  CoordinatorHarness cluster(SavingConfig(0));
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const messages::Grant grant = RunUntil(cluster, a, 3);
  cluster.coordinator().RequestStop("maintenance", cluster.now());
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).state, "stopping");
  cluster.FinishSave();  // checkpoint of the complete rounds
  EXPECT_EQ(cluster.store().published.back().round, Round(3));
  EXPECT_EQ(*cluster.Ask(a).grant, grant) << "what is out is finished";
  EXPECT_FALSE(cluster.Ask(a, CoordinatorHarness::ReportOf(grant)).grant.has_value());
  EXPECT_FALSE(cluster.coordinator().Ending().has_value()) << "before it is saved";
  cluster.FinishSave();
  const absl::StatusOr<JobOutcome> ending = *cluster.coordinator().Ending();
  EXPECT_EQ(ending->text, "stopped after 4 of 8 rounds");
  EXPECT_EQ(ending->saved->path, "ckpt/round-00000004");
  EXPECT_EQ(cluster.store().published.back().round, Round(4));
  const messages::Grant done = *cluster.Ask(a).grant;
  EXPECT_EQ(done.kind, messages::Grant::Kind::kDone);
  EXPECT_THAT(done.reason, HasSubstr("maintenance"));
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).waiting_for, "waits for a to leave");
  EXPECT_TRUE(cluster.coordinator().Leave(a.life, "done", {}, cluster.now()).ok());
  EXPECT_TRUE(cluster.coordinator().outcome().has_value());
}

TEST(CoordinatorRestartTest, StopOfACompleteJobDoesNotMakeItAStoppedOne) {
  CoordinatorHarness cluster(SavingConfig(0));
  cluster.Start();
  cluster.RunToEnd({cluster.Add("a")});
  cluster.coordinator().RequestStop("psctl stop", cluster.now());
  const absl::StatusOr<JobOutcome> ending = *cluster.coordinator().Ending();
  EXPECT_EQ(ending->text, "complete after all 8 rounds");
  EXPECT_EQ(ending->saved->path, "ckpt/round-00000008");
}

TEST(CoordinatorRestartTest, StopBeforeTheServersAreReadyEndsAtOnce) {
  CoordinatorHarness unready;
  unready.coordinator().RequestStop("", unready.now());
  EXPECT_TRUE(unready.coordinator().outcome().has_value());
  TestWorker worker{"a", 1, {}};
  EXPECT_TRUE(IsJobOver(unready.Register(worker).status()));
}

// Returns a RestoreChoice with a checkpoint. In the job of the checkpoint, "a" was a worker and "b"
// had left.
RestoreChoice ChoiceWithA() {
  checkpoints::CheckpointRecord record;
  record.final_directory = "ckpt/round-00000000";
  record.state.membership.names = {{"a", WorkerId(1)}, {"b", WorkerId(2), /*was_alive=*/false}};
  record.state.membership.last_id = WorkerId(2);
  return ChoiceOf(record);
}

TEST(CoordinatorRestartTest, StopBehindARestartIsToldToThoseWhoWereThere) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.Start(ChoiceWithA());
  cluster.coordinator().RequestStop("maintenance", cluster.now());
  EXPECT_FALSE(cluster.coordinator().outcome().has_value());
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
            "waits for a to come back, because they may not know that the job is over");
  const TestWorker a = cluster.Add("a");
  EXPECT_EQ(cluster.Ask(a).grant->kind, messages::Grant::Kind::kDone);
  EXPECT_TRUE(cluster.coordinator().Leave(a.life, "done", {}, cluster.now()).ok());
  EXPECT_TRUE(cluster.coordinator().outcome().has_value());
}

TEST(CoordinatorRestartTest, StopBehindARestartGivesThoseWhoWereThereALease) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.AttachAll();
  cluster.coordinator().OnRestoreChosen(ChoiceWithA(), cluster.now());
  ASSERT_EQ(cluster.coordinator().phase(), CoordinatorPhase::kLoading);
  cluster.coordinator().RequestStop("maintenance", cluster.now());
  cluster.Pass(absl::Seconds(9));
  EXPECT_FALSE(cluster.coordinator().outcome().has_value());
  cluster.Pass(absl::Seconds(1));
  EXPECT_TRUE(cluster.coordinator().outcome().has_value());
}

TEST(CoordinatorRestartTest, ServerThatIsStartedAnewSendsAllBackToTheCheckpoint) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.Start();
  TestWorker a = cluster.Add("a");
  RunUntil(cluster, a, 2);
  cluster.FinishSave();
  const checkpoints::CheckpointRecord record = cluster.store().published.back();
  const messages::Grant grant = *cluster.Ask(a).grant;
  cluster.coordinator().OnShardDisconnected(1, 71, cluster.now());
  cluster.Pass(absl::Seconds(3), {a});
  ASSERT_TRUE(cluster.coordinator().OnShardAttached(1, 2, 88, 0, "host:9", cluster.now()).ok());
  EXPECT_EQ(cluster.store().restores, 2);
  EXPECT_EQ(cluster.observer().alarms.back(),
            "the server of shard 1 was started again and has lost its weights; all servers go back "
            "to the checkpoint of round 2, or to an older one if that one is damaged");
  EXPECT_EQ(cluster.coordinator().Snapshot(cluster.now()).state, "restoring");
  cluster.coordinator().OnRestoreChosen(ChoiceOf(record), cluster.now());
  cluster.LoadAll();
  EXPECT_EQ(cluster.sent().assignments.size(), 2);
  EXPECT_EQ(cluster.sent().assignments[1].map->servers[1].address, "host:9");
  EXPECT_GT(cluster.sent().assignments[1].server_incarnation, 1000);
  EXPECT_EQ(cluster.coordinator().RequestGrant(a.life, {}, cluster.now()).status().code(),
            absl::StatusCode::kAborted);
  const TestWorker again = cluster.Add("a");
  EXPECT_EQ(again.life.worker, a.life.worker);
  EXPECT_EQ(cluster.Ask(again).grant->round, Round(2)) << "from the checkpoint";
}

TEST(CoordinatorRestartTest, StopRightAfterAStartWaitsForWorkersThatItCannotKnow) {
  CoordinatorHarness cluster;
  cluster.Start();
  cluster.coordinator().RequestStop("psctl stop", cluster.now());
  EXPECT_THAT(cluster.coordinator().Snapshot(cluster.now()).waiting_for,
              HasSubstr("workers of an earlier server"));
  cluster.Pass(absl::Seconds(5));
  const TestWorker a = cluster.Add("a");
  EXPECT_EQ(cluster.Ask(a).grant->kind, messages::Grant::Kind::kDone);
  EXPECT_FALSE(cluster.coordinator().outcome().has_value());
  ASSERT_TRUE(cluster.coordinator().Leave(a.life, "done", {}, cluster.now()).ok());
  EXPECT_TRUE(cluster.coordinator().outcome().has_value());

  CoordinatorHarness unvisited;
  unvisited.Start();
  unvisited.Pass(absl::Seconds(9));
  unvisited.coordinator().RequestStop("psctl stop", unvisited.now());
  EXPECT_FALSE(unvisited.coordinator().outcome().has_value());
  unvisited.Pass(absl::Seconds(2));
  EXPECT_TRUE(unvisited.coordinator().outcome().has_value());
}

// Twice a shard is lost and the job returns to the checkpoint of round 2. Then the job stops before
// it has done the lost rounds again.
TEST(CoordinatorRestartTest, AJobThatStopsShortOfWhereItOnceWasSaysWhatIsLost) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.Start();
  TestWorker a = cluster.Add("a");
  RunUntil(cluster, a, 2);
  cluster.FinishSave();
  RunUntil(cluster, a, 4);
  const checkpoints::CheckpointRecord record = cluster.store().published.back();
  ASSERT_EQ(record.round, Round(2));
  const auto go_back = [&](uint64_t instance) {
    ASSERT_TRUE(
        cluster.coordinator().OnShardAttached(1, 2, instance, 0, "host:9", cluster.now()).ok());
    cluster.coordinator().OnRestoreChosen(ChoiceOf(record), cluster.now());
    cluster.LoadAll();
    a = cluster.Add("a");
  };
  cluster.coordinator().OnShardDisconnected(1, 71, cluster.now());
  go_back(88);
  EXPECT_THAT(cluster.observer().events,
              Contains("rounds 2 to 3 were lost when the server of shard 1 was started again and "
                       "has lost its weights"));
  const messages::Grant grant = RunUntil(cluster, a, 3);
  cluster.coordinator().OnShardDisconnected(1, 88, cluster.now());
  go_back(99);
  EXPECT_THAT(cluster.coordinator().Lost(), HasSubstr("rounds 2 to 3 were lost"));
  cluster.coordinator().RequestStop("psctl stop", cluster.now());
  ASSERT_TRUE(cluster.coordinator().Ending().has_value());
  EXPECT_EQ((**cluster.coordinator().Ending()).text, "stopped after 2 of 8 rounds");
  EXPECT_THAT((**cluster.coordinator().Ending()).lost, HasSubstr("rounds 2 to 3 were lost"));
}

TEST(CoordinatorRestartTest, RoundsThatWereDoneAgainAreNotLost) {
  CoordinatorHarness cluster(SavingConfig(0));
  cluster.Start();
  RunUntil(cluster, cluster.Add("a"), 2);
  cluster.coordinator().OnShardDisconnected(1, 71, cluster.now());
  ASSERT_TRUE(cluster.coordinator().OnShardAttached(1, 2, 88, 0, "host:9", cluster.now()).ok());
  cluster.coordinator().OnRestoreChosen(
      RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 2000}, cluster.now());
  cluster.LoadAll();
  EXPECT_THAT(cluster.coordinator().Lost(), HasSubstr("rounds 0 to 1 were lost"));
  RunUntil(cluster, cluster.Add("a"), 2);
  EXPECT_EQ(cluster.coordinator().Lost(), "");
}

class AwayShardTest : public testing::Test {
 protected:
  AwayShardTest() : cluster_(SavingConfig()) {
    cluster_.Start();
    a_ = cluster_.Add("a");
    RunUntil(cluster_, a_, 2);
    cluster_.FinishSave();
    grant_ = *cluster_.Ask(a_).grant;
    EXPECT_EQ(grant_.round, Round(2));
  }

  Coordinator& coordinator() { return cluster_.coordinator(); }
  ClusterSnapshot Snapshot() { return coordinator().Snapshot(cluster_.now()); }
  void Reconnect() {
    ASSERT_TRUE(coordinator().OnShardAttached(1, 2, 71, 1000, "host:9", cluster_.now()).ok());
  }

  CoordinatorHarness cluster_;
  TestWorker a_;
  messages::Grant grant_;
};

TEST_F(AwayShardTest, ACutConnectionHoldsUpTheNextRoundAndSendsNobodyBack) {
  coordinator().OnShardDisconnected(1, 999, cluster_.now());
  EXPECT_EQ(Snapshot().state, "training") << "another process";
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  cluster_.Pass(absl::Seconds(3), {a_});
  EXPECT_EQ(cluster_.Ask(a_, CoordinatorHarness::ReportOf(grant_)).pending_reason,
            "waits for the server of shard 1 (away)")
      << "the same as long as it lasts, for the worker's log";
  cluster_.Pass(absl::Seconds(8), {a_});
  EXPECT_EQ(coordinator().Heartbeat({a_.life, 0, 0, ""}, cluster_.now())->waiting_for,
            "waits for the server of shard 1 (away)");
  EXPECT_EQ(Snapshot().state, "waiting_for_servers");
  EXPECT_EQ(Snapshot().shards.at(1).state, "away");
  TestWorker b{"b", 5, {}};
  EXPECT_EQ(cluster_.Register(b).status().code(), absl::StatusCode::kUnavailable);
  Reconnect();
  EXPECT_EQ(cluster_.Ask(a_).grant->round, Round(3)) << "the report was taken while it was away";
  EXPECT_EQ(cluster_.store().restores, 1);
  EXPECT_EQ(cluster_.sent().assignments.size(), 1);
}

TEST_F(AwayShardTest, WhatItMayHaveMissedIsRepeatedToItAlone) {
  const TestWorker b = cluster_.Add("b");
  coordinator().OnShardEvent(0, shards::ShardSquareSums{1000, Round(1), {1.0}}, cluster_.now());
  coordinator().OnShardEvent(1, shards::ShardSquareSums{1000, Round(1), {2.0}}, cluster_.now());
  EXPECT_EQ(cluster_.sent().commands.back(), "norm 1 3");
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  ASSERT_TRUE(coordinator().Leave(b.life, "done", {}, cluster_.now()).ok());
  cluster_.sent().commands.clear();
  Reconnect();
  EXPECT_THAT(cluster_.sent().commands,
              ElementsAre("again to 1: open 2", "again to 1: members 1", "again to 1: drop 2",
                          "again to 1: norm 1 3", "again to 1: published 2"));
}

TEST_F(AwayShardTest, SumsOfAnEarlierLifeOfTheServersDoNotCount) {
  coordinator().OnShardEvent(0, shards::ShardSquareSums{1000, Round(2), {1.0}}, cluster_.now());
  cluster_.sent().commands.clear();
  coordinator().OnShardEvent(1, shards::ShardSquareSums{999, Round(2), {2.0}}, cluster_.now());
  EXPECT_THAT(cluster_.sent().commands, ::testing::IsEmpty());
  coordinator().OnShardEvent(1, shards::ShardSquareSums{1000, Round(2), {3.0}}, cluster_.now());
  EXPECT_THAT(cluster_.sent().commands, ElementsAre("norm 2 4"));
}

TEST_F(AwayShardTest, ASilentServerIsAwayAndNamedUntilItIsHeardAgain) {
  cluster_.silent_shard = 1;
  cluster_.Pass(absl::Seconds(9), {a_});
  EXPECT_EQ(Snapshot().state, "training");
  cluster_.Pass(absl::Seconds(2), {a_});
  EXPECT_EQ(Snapshot().state, "waiting_for_servers");
  EXPECT_THAT(Snapshot().waiting_for, HasSubstr("the server of shard 1 (away for 11s)"));
  EXPECT_THAT(Snapshot().alarms.at(0).text, HasSubstr("shard 1 at host:1 does not answer"));
  cluster_.Pass(absl::Seconds(5), {a_});
  EXPECT_EQ(Snapshot().alarms.at(0).count, 1);
  cluster_.silent_shard = -1;
  cluster_.Pass(absl::Seconds(1), {a_});
  EXPECT_EQ(Snapshot().state, "training");
  EXPECT_TRUE(cluster_.Ask(a_, CoordinatorHarness::ReportOf(grant_)).grant.has_value());
  EXPECT_EQ(cluster_.store().restores, 1);
}

TEST_F(AwayShardTest, AnotherProcessTakesOverFromOneThatIsAwayOnly) {
  EXPECT_EQ(coordinator().OnShardAttached(1, 2, 88, 0, "host:9", cluster_.now()).code(),
            absl::StatusCode::kAlreadyExists);
  cluster_.silent_shard = 1;
  cluster_.Pass(absl::Seconds(11), {a_});
  EXPECT_TRUE(coordinator().OnShardAttached(1, 2, 88, 0, "host:9", cluster_.now()).ok());
  EXPECT_EQ(cluster_.store().restores, 2);
}

// The late call was sent before the server had loaded, over a connection that delayed it.
TEST_F(AwayShardTest, ACallThatComesLateSendsNobodyBack) {
  EXPECT_EQ(coordinator().OnShardAttached(1, 2, 71, 0, "host:1", cluster_.now()).code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(Snapshot().state, "training");
  EXPECT_EQ(cluster_.store().restores, 1);
}

TEST(CoordinatorRestartTest, AServerOfAnotherClusterIsToldHowLargeThisOneIs) {
  for (const int num_shards : {1, 2}) {
    Coordinator::Config config = TestConfig();
    config.num_shards = num_shards;
    CoordinatorHarness cluster(config);
    const absl::Status refused =
        cluster.coordinator().OnShardAttached(1, 3, 71, 0, "host:1", cluster.now());
    EXPECT_THAT(
        std::string(refused.message()),
        HasSubstr(num_shards == 1 ? "this cluster of 1 shard;" : "this cluster of 2 shards;"));
  }
}

TEST(CoordinatorRestartTest, WhatALostServerHadIsSaidAsItIs) {
  CoordinatorHarness cluster;
  cluster.AttachAll();
  Coordinator& coordinator = cluster.coordinator();
  const auto attach = [&](uint64_t instance_id, uint64_t memory_of) {
    const absl::Status attached =
        coordinator.OnShardAttached(1, 2, instance_id, memory_of, "host:1", cluster.now());
    EXPECT_TRUE(attached.ok()) << attached;
    return cluster.observer().alarms.back();
  };
  const auto load_with = [&](uint64_t server_incarnation) {
    coordinator.OnRestoreChosen(
        RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = server_incarnation},
        cluster.now());
    EXPECT_EQ(coordinator.phase(), CoordinatorPhase::kLoading);
  };
  coordinator.OnShardDisconnected(1, 71, cluster.now());
  EXPECT_EQ(cluster.observer().alarms.back(),
            "the server of shard 1 lost its connection before it was told which weights to load; "
            "the cluster waits until that server connects again");
  attach(71, 0);
  load_with(1000);
  EXPECT_EQ(attach(71, 0),
            "the server of shard 1 did not receive the coordinator's order to load weights; all "
            "servers load their weights again");
  load_with(2000);
  coordinator.OnShardDisconnected(1, 71, cluster.now());
  EXPECT_EQ(attach(88, 0),
            "the server of shard 1 was started again; all servers load their weights again");
  load_with(3000);
  cluster.LoadAll();
  coordinator.OnShardDisconnected(1, 88, cluster.now());
  EXPECT_EQ(attach(99, 0),
            "the server of shard 1 was started again and has lost its weights; all servers go back "
            "to the first weights, because there is no checkpoint");
}

TEST(CoordinatorRestartTest, CheckpointUnderWayFailsWithItsShard) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.Start();
  RunUntil(cluster, cluster.Add("a"), 2);
  cluster.coordinator().OnShardDisconnected(0, 70, cluster.now());
  EXPECT_THAT(cluster.store().discarded, ElementsAre("ckpt/round-00000002.1000-1.tmp"));
  cluster.coordinator().OnShardEvent(
      1, shards::ShardSaved{1000, "ckpt/round-00000002.1000-1.tmp", std::string("late")},
      cluster.now());
  EXPECT_TRUE(cluster.store().published.empty());
}

TEST(CoordinatorRestartTest, CheckpointUnderWayFailsWithTheOldConnectionOfAShardThatHasANewOne) {
  CoordinatorHarness cluster(SavingConfig());
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  RunUntil(cluster, a, 2);
  // The coordinator has not noticed the end of the old connection. The command to save may have
  // been lost with that connection.
  ASSERT_TRUE(cluster.coordinator().OnShardAttached(1, 2, 71, 1000, "host:1", cluster.now()).ok());
  EXPECT_THAT(cluster.store().discarded, ElementsAre("ckpt/round-00000002.1000-1.tmp"));
  RunUntil(cluster, a, 4);
  EXPECT_THAT(cluster.sent().save_directories,
              ElementsAre("ckpt/round-00000002.1000-1.tmp", "ckpt/round-00000004.1000-2.tmp"));
}

TEST(CoordinatorRestartTest, AttachingRefusesWrongNumbersAndSecondServers) {
  CoordinatorHarness cluster;
  cluster.AttachAll();
  Coordinator& coordinator = cluster.coordinator();
  EXPECT_EQ(coordinator.OnShardAttached(1, 3, 5, 0, "x", cluster.now()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator.OnShardAttached(2, 2, 5, 0, "x", cluster.now()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator.OnShardAttached(1, 2, 5, 0, "x", cluster.now()).code(),
            absl::StatusCode::kAlreadyExists);
}

TEST(CoordinatorRestartTest, WeightsThatCannotBeLoadedAreAFailure) {
  CoordinatorHarness cluster;
  cluster.AttachAll();
  cluster.coordinator().OnRestoreChosen(
      RestoreChoice{.source = shards::SafetensorsSource{"w"}, .server_incarnation = 9},
      cluster.now());
  cluster.coordinator().OnShardEvent(
      0, shards::ShardLoaded{9, absl::NotFoundError("tensor x is missing")}, cluster.now());
  EXPECT_EQ(cluster.coordinator().phase(), CoordinatorPhase::kFailed);
  EXPECT_THAT(std::string(cluster.coordinator().outcome()->message()), HasSubstr("tensor x"));
}

TEST(CoordinatorRestartTest, AJobThatWasUnderWayWaitsForAServerThatCanLoad) {
  CoordinatorHarness cluster;
  cluster.Start();
  Coordinator& coordinator = cluster.coordinator();
  const uint64_t first_life = coordinator.server_incarnation();
  coordinator.OnShardDisconnected(1, 71, cluster.now());
  ASSERT_TRUE(coordinator.OnShardAttached(1, 2, 99, /*memory_of=*/0, "host:9", cluster.now()).ok());
  coordinator.OnRestoreChosen(RestoreChoice{.server_incarnation = first_life + 1}, cluster.now());
  ASSERT_EQ(coordinator.phase(), CoordinatorPhase::kLoading);
  const uint64_t life = coordinator.server_incarnation();
  coordinator.OnShardEvent(0, shards::ShardLoaded{life, absl::OkStatus()}, cluster.now());
  coordinator.OnShardEvent(
      1, shards::ShardLoaded{life, absl::ResourceExhaustedError("too little memory")},
      cluster.now());
  EXPECT_EQ(coordinator.phase(), CoordinatorPhase::kAwaitingShards);
  EXPECT_FALSE(coordinator.outcome().has_value());
  EXPECT_THAT(cluster.sent().commands.back(),
              AllOf(HasSubstr("again to 1: stop"), HasSubstr("too little memory")));
  EXPECT_EQ(cluster.sent().stopped_instance, 99);
  EXPECT_THAT(cluster.observer().alarms,
              Contains(AllOf(HasSubstr("host:9"), HasSubstr("shard 1"))));

  ASSERT_TRUE(
      coordinator.OnShardAttached(1, 2, 100, /*memory_of=*/0, "host:9", cluster.now()).ok());
  coordinator.OnRestoreChosen(RestoreChoice{.server_incarnation = life + 1}, cluster.now());
  ASSERT_EQ(coordinator.phase(), CoordinatorPhase::kLoading);
  for (const int shard : {0, 1}) {
    coordinator.OnShardEvent(
        shard, shards::ShardLoaded{coordinator.server_incarnation(), absl::OkStatus()},
        cluster.now());
  }
  EXPECT_EQ(coordinator.phase(), CoordinatorPhase::kRunning);
  int num_over = 0;
  for (const AlarmSnapshot& alarm : coordinator.Snapshot(cluster.now()).alarms) {
    num_over += alarm.over_age.has_value() ? 1 : 0;
  }
  EXPECT_EQ(num_over, 2) << "the server that could not load, and that all load again";
}

TEST(CoordinatorRestartTest, WorkersOfBeforeLearnThatWeightsCannotBeLoaded) {
  CoordinatorHarness cluster;
  RestoreChoice choice{.source = shards::CheckpointSource{"ckpt/round"},
                       .state = checkpoints::CoordinatorState{}};
  choice.server_incarnation = 9;
  choice.state->membership.names = {{"a", WorkerId(1)}};
  cluster.AttachAll();
  Coordinator& coordinator = cluster.coordinator();
  coordinator.OnRestoreChosen(choice, cluster.now());
  coordinator.OnShardEvent(0, shards::ShardLoaded{9, absl::ResourceExhaustedError("too little")},
                           cluster.now());
  EXPECT_FALSE(coordinator.outcome().has_value());
  EXPECT_THAT(coordinator.Snapshot(cluster.now()).waiting_for,
              AllOf(HasSubstr("too little"), HasSubstr("waits for a to come back")));
  TestWorker a{"a", 1, {}};
  EXPECT_THAT(Message(cluster.Register(a).status()),
              HasSubstr("the job has failed: shard 0 could not load its weights: too little"));
  cluster.Pass(absl::Seconds(11));
  EXPECT_TRUE(coordinator.outcome().has_value());
}

// No server can receive the contributions of the workers any more.
TEST(CoordinatorRestartTest, WorkersAtWorkLearnThatNothingCanBeRestored) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker late = cluster.Add("late");
  EXPECT_TRUE(cluster.Ask(a).grant.has_value());
  Coordinator& coordinator = cluster.coordinator();
  coordinator.OnShardDisconnected(1, 71, cluster.now());
  ASSERT_TRUE(coordinator.OnShardAttached(1, 2, 5, 0, "host:1", cluster.now()).ok());
  coordinator.OnRestoreChosen(absl::InternalError("the disk cannot be read"), cluster.now());
  EXPECT_EQ(coordinator.phase(), CoordinatorPhase::kFailed);
  for (TestWorker worker : {a, late}) {
    EXPECT_EQ(coordinator.Heartbeat({worker.life, 0, 0, "push"}, cluster.now()).status().code(),
              absl::StatusCode::kAborted);
    EXPECT_THAT(Message(cluster.Register(worker).status()), HasSubstr("the disk cannot be read"));
  }
  EXPECT_FALSE(coordinator.outcome().has_value());
  cluster.Pass(absl::Seconds(11));
  EXPECT_TRUE(coordinator.outcome().has_value());
}

// If the coordinator did not wait, a server would look for a coordinator that has exited.
TEST(CoordinatorRestartTest, AServerThatMayNotHaveHeardOfTheEndIsWaitedFor) {
  CoordinatorHarness cluster;
  cluster.Start();
  Coordinator& coordinator = cluster.coordinator();
  coordinator.RequestStop("maintenance", cluster.now());
  EXPECT_FALSE(coordinator.AwaitsServers(cluster.now()));
  cluster.Pass(absl::Seconds(11));
  ASSERT_TRUE(coordinator.outcome().has_value());
  EXPECT_TRUE(coordinator.AwaitsServers(cluster.now()));
  EXPECT_THAT(coordinator.Snapshot(cluster.now()).waiting_for,
              HasSubstr("waits for the server of shard 1 to hear that the job is over"));
  coordinator.OnShardDisconnected(1, 71, cluster.now());
  for (const auto& [instance_id, memory_of] : {std::pair(71, 1000), std::pair(5, 0)}) {
    cluster.sent().commands.clear();
    ASSERT_TRUE(
        coordinator.OnShardAttached(1, 2, instance_id, memory_of, "host:1", cluster.now()).ok());
    EXPECT_THAT(cluster.sent().commands, ElementsAre("again to 1: stop"));
  }
  cluster.Pass(absl::Seconds(14));
  EXPECT_TRUE(coordinator.AwaitsServers(cluster.now()));
  coordinator.OnShardEvent(1, shards::ShardExiting{}, cluster.now());
  EXPECT_FALSE(coordinator.AwaitsServers(cluster.now()));
  EXPECT_EQ(coordinator.Snapshot(cluster.now()).waiting_for, "");
}

TEST(CoordinatorRestartTest, AServerThatCannotHearOfTheEndIsWaitedForOnlySoLong) {
  CoordinatorHarness cluster;
  cluster.Start();
  cluster.coordinator().RequestStop("maintenance", cluster.now());
  cluster.Pass(absl::Seconds(11));
  cluster.Pass(absl::Seconds(15));
  EXPECT_FALSE(cluster.coordinator().AwaitsServers(cluster.now()));

  CoordinatorHarness lacking;
  lacking.Start();
  const TestWorker a = lacking.Add("a");
  lacking.coordinator().RequestStop("maintenance", lacking.now());
  lacking.silent_shard = 1;
  lacking.Pass(absl::Seconds(9), {a});
  lacking.Pass(absl::Seconds(9), {a});
  lacking.Pass(absl::Seconds(9), {a});
  ASSERT_TRUE(lacking.coordinator().Leave(a.life, "done", {}, lacking.now()).ok());
  ASSERT_TRUE(lacking.coordinator().outcome().has_value());
  EXPECT_FALSE(lacking.coordinator().AwaitsServers(lacking.now())) << "people know that it is away";
}

TEST(CoordinatorRestartTest, FirstClientBringsLayoutAndWeights) {
  Coordinator::Config config = TestConfig();
  config.job.model = *params::ModelPreset("client");
  CoordinatorHarness cluster(config);
  cluster.Start({.source = shards::ClientSource{}, .server_incarnation = 9});
  EXPECT_EQ(cluster.coordinator().phase(), CoordinatorPhase::kAwaitingLayout);
  TestWorker plain{"plain", 1, {}};
  EXPECT_EQ(cluster.Register(plain).status().code(), absl::StatusCode::kUnavailable);

  messages::RegisterCall call{
      .name = "a", .instance_id = 1, .device = "", .peer = "", .layout = {}};
  call.layout = OneTensor({8, 8});
  EXPECT_EQ(cluster.coordinator().Register(call, cluster.now()).status().code(),
            absl::StatusCode::kUnavailable)
      << "the servers prepare";
  cluster.LoadAll();
  const auto a = cluster.coordinator().Register(call, cluster.now());
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_TRUE(a->needs_initial_weights);
  const auto b = cluster.Register(plain);
  ASSERT_TRUE(b.ok());
  EXPECT_FALSE(b->needs_initial_weights);
  ASSERT_TRUE(cluster.Join(plain).ok());
  EXPECT_THAT(cluster.Ask(plain).pending_reason, HasSubstr("waits for a to supply"));
  // Shards accept the first weights only as long as they know no member.
  EXPECT_THAT(cluster.sent().commands, Not(Contains(StartsWith("members"))));
  ASSERT_TRUE(cluster.Join({"a", 1, a->life}).ok());
  EXPECT_THAT(cluster.sent().commands, Contains("members 2"));
  EXPECT_TRUE(cluster.Ask(plain).grant.has_value());

  call.name = "c";
  call.layout = OneTensor({8, 9});
  EXPECT_EQ(cluster.coordinator().Register(call, cluster.now()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CoordinatorRestartTest, AClientThatGoesByTheJobsLayoutNeedsTheSameTensorsOnly) {
  const auto tensor = [](const char* name, std::vector<int64_t> shape) {
    params::TensorSpec spec;
    spec.name = name;
    spec.shape = std::move(shape);
    return spec;
  };
  for (const char* model : {"client", "mlp"}) {
    Coordinator::Config config = TestConfig();
    if (model == std::string("client")) config.job.model = *params::ModelPreset(model);
    CoordinatorHarness cluster(config);
    RestoreChoice choice{.source = shards::InitialSource{}, .server_incarnation = 9};
    if (model == std::string("client")) {
      choice.source = shards::ClientSource{};
      choice.layout = *params::Layout::FromTensors({tensor("w", {8, 8}), tensor("b", {8})});
    }
    cluster.Start(choice);
    const params::Layout job = cluster.coordinator().map()->layout;
    // Another client registers first. If a client has to supply the weights, it will be this one.
    // So the next client may bring another layout.
    TestWorker first{"first", 7, {}};
    ASSERT_TRUE(cluster.Register(first).ok());
    std::vector<params::TensorSpec> tensors = job.tensors();
    std::reverse(tensors.begin(), tensors.end());
    for (params::TensorSpec& reversed : tensors) {
      reversed.block = 0;
      reversed.name.insert(0, "transformer.");
    }
    messages::RegisterCall call{
        .name = "a", .instance_id = 1, .device = "", .peer = "", .layout = {}};
    call.layout = *params::Layout::FromTensors(tensors);
    EXPECT_EQ(cluster.coordinator().Register(call, cluster.now()).status().code(),
              absl::StatusCode::kInvalidArgument);
    call.adopts_order = true;
    const auto registered = cluster.coordinator().Register(call, cluster.now());
    ASSERT_TRUE(registered.ok()) << registered.status();
    EXPECT_EQ(registered->layout().hash(), job.hash());
    tensors.pop_back();
    call.layout = *params::Layout::FromTensors(tensors);
    const absl::Status refused = cluster.coordinator().Register(call, cluster.now()).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(refused),
                HasSubstr(absl::StrCat("the job has tensor '", job.tensors()[0].name, "'")));
  }
}

TEST(CoordinatorRestartTest, OtherFrozenWeightsAreRefusedBeforeAndAfterRestart) {
  CoordinatorHarness cluster;
  cluster.Start();
  messages::RegisterCall call;
  call.name = "a";
  call.frozen_hash = "x";
  ASSERT_OK(cluster.coordinator().Register(call, cluster.now()).status());
  call.name = "b";
  call.frozen_hash = "y";
  const absl::Status refused = cluster.coordinator().Register(call, cluster.now()).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("'a'")));
  cluster.Restart();
  cluster.AttachAgain();
  EXPECT_EQ(cluster.coordinator().Register(call, cluster.now()).status(), refused);
  call.frozen_hash = "x";
  EXPECT_OK(cluster.coordinator().Register(call, cluster.now()).status());
}

TEST(CoordinatorRestartTest, IndexIsToldAtRegistrationAndOutlivesRestart) {
  CoordinatorHarness cluster;
  cluster.Start();
  TestWorker a{"a", 1, {}};
  TestWorker b{"b", 2, {}};
  EXPECT_EQ(cluster.Register(a)->index, 0);
  ASSERT_OK_AND_ASSIGN(const messages::Registration registered, cluster.Register(b));
  EXPECT_EQ(registered.index, 1);
  EXPECT_EQ(registered.live_workers, (messages::LiveWorkers{.count = 2, .lowest_index = 0}));
  ASSERT_OK(cluster.coordinator().Leave(a.life, "", {}, cluster.now()));
  cluster.Restart();
  cluster.AttachAgain();
  ASSERT_OK_AND_ASSIGN(
      const messages::HeartbeatAnswer answer,
      cluster.coordinator().Heartbeat({.life = b.life, .activity = ""}, cluster.now()));
  EXPECT_EQ(answer.live_workers, (messages::LiveWorkers{.count = 1, .lowest_index = 1}));
  EXPECT_EQ(cluster.Register(b)->index, 1) << "the life goes on";
  TestWorker c{"c", 3, {}};
  EXPECT_EQ(cluster.Register(c)->index, 0);
}

TEST(CoordinatorRestartTest, GrantIsAnsweredWithLiveWorkersAndKeptWithoutThem) {
  CoordinatorHarness cluster;
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const GrantAnswer before = cluster.Ask(a);
  ASSERT_TRUE(before.grant.has_value());
  EXPECT_EQ(before.grant->live_workers, std::nullopt);
  EXPECT_EQ(before.OrWait().live_workers, (messages::LiveWorkers{.count = 1, .lowest_index = 0}));
  cluster.Add("b");
  const GrantAnswer after = cluster.Ask(a);
  EXPECT_EQ(after.grant, before.grant);
  EXPECT_EQ(after.OrWait().live_workers, (messages::LiveWorkers{.count = 2, .lowest_index = 0}));
}

TEST(CoordinatorRestartTest, AnotherClientSuppliesIfTheFirstIsLost) {
  Coordinator::Config config = TestConfig();
  config.job.model = *params::ModelPreset("client");
  CoordinatorHarness cluster(config);
  RestoreChoice choice{.source = shards::ClientSource{}, .server_incarnation = 9};
  choice.layout = OneTensor({8, 8});
  cluster.Start(choice);
  TestWorker a{"a", 1, {}};
  TestWorker b{"b", 2, {}};
  EXPECT_TRUE(cluster.Register(a)->needs_initial_weights);
  EXPECT_FALSE(cluster.Register(b)->needs_initial_weights);
  cluster.Pass(absl::Seconds(6));
  cluster.Heartbeat(b);
  cluster.Pass(absl::Seconds(6), {b});
  EXPECT_FALSE(cluster.coordinator().Heartbeat({b.life, 0, 0, ""}, cluster.now()).ok());
  EXPECT_TRUE(cluster.Register(b)->needs_initial_weights);
}

}  // namespace
}  // namespace lodestar::coordinator
