// SPDX-License-Identifier: Apache-2.0

// Tests of the last checkpoint, before a server stops and at the end of the job. Some saves fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Minutes(1);

Coordinator::Config SavingConfig() {
  Coordinator::Config config = TestConfig();
  config.checkpoint_dir = "ckpt";
  return config;
}

class CoordinatorLastSaveTest : public testing::Test {
 protected:
  explicit CoordinatorLastSaveTest(Coordinator::Config config = SavingConfig())
      : cluster_(std::move(config)) {}

  void SetUp() override { cluster_.Start(); }

  Coordinator& coordinator() { return cluster_.coordinator(); }
  // Reports that shard 0 cannot write the newest checkpoint.
  void FailSave() {
    coordinator().OnShardEvent(0,
                               shards::ShardSaved{coordinator().server_incarnation(),
                                                  cluster_.sent().save_directories.back(),
                                                  absl::ResourceExhaustedError("disk full")},
                               cluster_.now());
  }
  void BeginLastSave(const std::string& reason = "shard 1 stops") {
    coordinator().BeginLastSave(reason, kPatience, cluster_.now());
  }
  // Opens round 1 for two workers. Only the first of them reports it.
  std::pair<TestWorker, TestWorker> BeginWhileOneOwesARound() {
    std::pair<TestWorker, TestWorker> workers = {cluster_.Add("a"), cluster_.Add("b")};
    const auto& [a, b] = workers;
    const messages::Grant first = *cluster_.Ask(a).grant;
    cluster_.Ask(b);
    const messages::Grant grant = *cluster_.Ask(a, CoordinatorHarness::ReportOf(first)).grant;
    EXPECT_TRUE(cluster_.Ask(b).grant.has_value());
    BeginLastSave();
    cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
    return workers;
  }
  std::string Error() {
    const auto& outcome = coordinator().LastSaveOutcome();
    return outcome.has_value() ? std::string(outcome->status().message()) : "not over";
  }
  absl::StatusCode Code() {
    const auto& outcome = coordinator().LastSaveOutcome();
    return outcome.has_value() ? outcome->status().code() : absl::StatusCode::kUnknown;
  }
  ClusterSnapshot Snapshot() { return coordinator().Snapshot(cluster_.now()); }

  CoordinatorHarness cluster_;
};

TEST_F(CoordinatorLastSaveTest, ComesAfterTheOpenRoundAndHoldsAllThatWasDone) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  BeginLastSave();
  EXPECT_THAT(cluster_.sent().save_directories, IsEmpty()) << "round 0 is open";
  EXPECT_THAT(cluster_.Ask(a, CoordinatorHarness::ReportOf(grant)).pending_reason,
              HasSubstr("no work is handed out: shard 1 stops"));
  EXPECT_FALSE(coordinator().LastSaveOutcome().has_value());
  cluster_.FinishSave();
  EXPECT_EQ((*coordinator().LastSaveOutcome())->round, Round(1));
  EXPECT_FALSE(cluster_.Ask(a).grant.has_value());
  EXPECT_EQ(cluster_.sent().commands.back(), "published 1");
  EXPECT_EQ(coordinator().Unsaved(), "");
}

// A process that was told to stop may be killed before the open round is completed.
TEST_F(CoordinatorLastSaveTest, SavesTheCompleteRoundsAtOnceAndTheOpenOneOnceItHasCome) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant open =
      *cluster_.Ask(a, CoordinatorHarness::ReportOf(*cluster_.Ask(a).grant)).grant;
  EXPECT_EQ(open.round, Round(1));
  BeginLastSave();
  EXPECT_EQ(cluster_.sent().commands.back(), "save 1");
  cluster_.FinishSave();
  const checkpoints::CheckpointRecord early = cluster_.store().published.back();
  EXPECT_EQ(early.round, Round(1));
  EXPECT_EQ(early.state.ledger.next_round, 1);
  EXPECT_EQ(early.state.ledger.next_sample, open.first_sample) << "the open round comes again";
  EXPECT_FALSE(coordinator().LastSaveOutcome().has_value());
  cluster_.Pass(absl::Seconds(1), {a});
  EXPECT_EQ(cluster_.sent().save_directories.size(), 1) << "it is saved once";

  cluster_.Ask(a, CoordinatorHarness::ReportOf(open));
  EXPECT_EQ(cluster_.sent().commands.back(), "save 2");
  cluster_.FinishSave();
  ASSERT_EQ(Code(), absl::StatusCode::kOk) << Error();
  EXPECT_EQ((*coordinator().LastSaveOutcome())->round, Round(2));
}

TEST_F(CoordinatorLastSaveTest, AStopByAnOperatorSavesTheCompleteRoundsAtOnceToo) {
  const TestWorker a = cluster_.Add("a");
  cluster_.Ask(a, CoordinatorHarness::ReportOf(*cluster_.Ask(a).grant));
  coordinator().RequestStop("psctl stop", cluster_.now());
  EXPECT_EQ(cluster_.sent().commands.back(), "save 1");
}

// One bucket of shard 0 has completed the open round before the SaveCommand comes. So the shard
// cannot save the state before that round.
TEST_F(CoordinatorLastSaveTest, AnOpenRoundThatComesMeanwhileIsNoFailure) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant open =
      *cluster_.Ask(a, CoordinatorHarness::ReportOf(*cluster_.Ask(a).grant)).grant;
  BeginLastSave();
  ASSERT_EQ(cluster_.sent().save_directories.size(), 1);
  coordinator().OnShardEvent(0,
                             shards::ShardSaved{coordinator().server_incarnation(),
                                                cluster_.sent().save_directories.back(),
                                                absl::FailedPreconditionError("past that")},
                             cluster_.now());
  EXPECT_THAT(Snapshot().alarms, IsEmpty());
  cluster_.Ask(a, CoordinatorHarness::ReportOf(open));
  cluster_.FinishSave();
  EXPECT_EQ((*coordinator().LastSaveOutcome())->round, Round(2));
}

TEST_F(CoordinatorLastSaveTest, WhatACheckpointHoldsAlreadyIsNotSavedAgainBeforeTheOpenRound) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  ASSERT_TRUE(coordinator().RequestCheckpoint(cluster_.now()).ok());
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  cluster_.FinishSave();
  ASSERT_EQ(cluster_.store().published.back().round, Round(1));
  BeginLastSave();
  EXPECT_EQ(cluster_.sent().save_directories.size(), 1);
}

class LastSaveWithJournalTest : public CoordinatorLastSaveTest {
 protected:
  static Coordinator::Config WithJournal() {
    Coordinator::Config config = SavingConfig();
    config.has_journal = true;
    return config;
  }
  LastSaveWithJournalTest() : CoordinatorLastSaveTest(WithJournal()) {}
};

TEST_F(LastSaveWithJournalTest, WaitsForTheOpenRoundBecauseTheJournalHasTheOthers) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant open =
      *cluster_.Ask(a, CoordinatorHarness::ReportOf(*cluster_.Ask(a).grant)).grant;
  BeginLastSave();
  EXPECT_THAT(cluster_.sent().save_directories, IsEmpty());
  cluster_.Ask(a, CoordinatorHarness::ReportOf(open));
  EXPECT_EQ(cluster_.sent().commands.back(), "save 2");
}

TEST_F(CoordinatorLastSaveTest, EveryServerThatStopsGetsTheSameOneInAnyOrder) {
  const TestWorker a = cluster_.Add("a");
  cluster_.Ask(a, CoordinatorHarness::ReportOf(*cluster_.Ask(a).grant));
  cluster_.Ask(a, CoordinatorHarness::ReportOf(*cluster_.Ask(a).grant));
  const messages::Grant open = *cluster_.Ask(a).grant;
  BeginLastSave("shard 1 stops");
  BeginLastSave("the coordinator stops");
  cluster_.FinishSave();  // checkpoint of the complete rounds
  cluster_.Ask(a, CoordinatorHarness::ReportOf(open));
  cluster_.FinishSave();
  EXPECT_EQ(cluster_.sent().save_directories.size(), 2);
  // The server of shard 1 exits. The coordinator then needs no new checkpoint for its own exit,
  // because the newest checkpoint has everything.
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  BeginLastSave("the coordinator stops");
  ASSERT_EQ(Code(), absl::StatusCode::kOk) << Error();
  EXPECT_EQ((*coordinator().LastSaveOutcome())->round, Round(3));
  EXPECT_EQ(cluster_.sent().save_directories.size(), 2);
}

TEST_F(CoordinatorLastSaveTest, WhenTheStoppedServerIsBackTheJobGoesOn) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  BeginLastSave();
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  cluster_.FinishSave();
  const checkpoints::CheckpointRecord record = cluster_.store().published.back();
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  ASSERT_TRUE(coordinator().OnShardAttached(1, 2, 88, 0, "host:9", cluster_.now()).ok());
  coordinator().OnRestoreChosen(
      RestoreChoice{.source = shards::CheckpointSource{record.final_directory},
                    .state = record.state,
                    .server_incarnation = 2000},
      cluster_.now());
  cluster_.LoadAll();
  EXPECT_FALSE(coordinator().LastSaveOutcome().has_value());
  EXPECT_EQ(cluster_.Ask(cluster_.Add("a")).grant->round, Round(1));
}

// The restarted server has lost nothing. So no server and no worker goes back to a checkpoint, and
// the job no longer waits for the last save.
TEST_F(CoordinatorLastSaveTest, WhenTheStoppedServerGoesOnFromItsJournalTheJobGoesOn) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  BeginLastSave(ReasonOfStop(1));
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  cluster_.FinishSave();
  const uint64_t life = coordinator().server_incarnation();
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  ASSERT_TRUE(coordinator().OnShardAttached(1, 2, 71, life, "host:1", cluster_.now()).ok());
  EXPECT_FALSE(cluster_.Ask(a).grant.has_value()) << "it was only cut off";
  coordinator().OnShardEvent(1, shards::ShardLoaded{life, absl::OkStatus()}, cluster_.now());
  EXPECT_EQ(cluster_.Ask(a).grant->round, Round(1));
  EXPECT_FALSE(coordinator().LastSaveOutcome().has_value());
  EXPECT_EQ(coordinator().server_incarnation(), life);
}

// After another process has taken over a server's journal, a message of the old process may still
// arrive.
TEST_F(CoordinatorLastSaveTest, WhoseProcessAnotherHasFollowedIsNotHeard) {
  const uint64_t life = coordinator().server_incarnation();
  const auto attach = [&](uint64_t first_segment) {
    return coordinator().OnShardAttached(1, 2, 71, life, "host:1", cluster_.now(),
                                         shards::JournalPlace{.first_segment = first_segment});
  };
  ASSERT_TRUE(attach(5).ok());
  EXPECT_TRUE(coordinator().CheckNotFollowed(1, 5).ok());
  ASSERT_TRUE(attach(6).ok());
  EXPECT_EQ(coordinator().CheckNotFollowed(1, 5).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(coordinator().CheckNotFollowed(1, 6).ok());
  EXPECT_TRUE(coordinator().CheckNotFollowed(1, 0).ok()) << "of an earlier release";
  EXPECT_TRUE(coordinator().CheckNotFollowed(7, 1).ok()) << "no such shard";
}

TEST_F(CoordinatorLastSaveTest, AServerThatIsStoppedAndStartedAgainWhileOthersLoadHoldsUpNothing) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  BeginLastSave();
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  cluster_.FinishSave();
  const checkpoints::CheckpointRecord record = cluster_.store().published.back();
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  const auto attach = [this](uint64_t memory_of, uint64_t first_segment) {
    return coordinator().OnShardAttached(1, 2, 88, memory_of, "host:9", cluster_.now(),
                                         shards::JournalPlace{.first_segment = first_segment});
  };
  ASSERT_TRUE(attach(0, 5).ok());
  coordinator().OnRestoreChosen(
      RestoreChoice{.source = shards::CheckpointSource{record.final_directory},
                    .state = record.state,
                    .server_incarnation = 2000},
      cluster_.now());
  const uint64_t life = coordinator().server_incarnation();
  coordinator().OnShardEvent(1, shards::ShardLoaded{life, absl::OkStatus()}, cluster_.now());
  BeginLastSave(ReasonOfStop(1));
  ASSERT_TRUE(coordinator().LastSaveOutcome().has_value()) << "there is nothing to save";
  coordinator().OnShardDisconnected(1, 88, cluster_.now());
  ASSERT_TRUE(attach(life, 6).ok());
  coordinator().OnShardEvent(1, shards::ShardLoaded{life, absl::OkStatus()}, cluster_.now());
  coordinator().OnShardEvent(0, shards::ShardLoaded{life, absl::OkStatus()}, cluster_.now());
  EXPECT_EQ(cluster_.Ask(cluster_.Add("a")).grant->round, Round(1));
}

TEST_F(CoordinatorLastSaveTest, AWorkerThatHoldsItUpIsDroppedAfterHalfOfThePatience) {
  const auto [a, b] = BeginWhileOneOwesARound();
  cluster_.FinishSave();  // checkpoint of the complete rounds
  for (int i = 0; i < 5; ++i) cluster_.Pass(absl::Seconds(5), {a, b});
  EXPECT_EQ(cluster_.sent().save_directories.size(), 1);
  EXPECT_THAT(Snapshot().waiting_for, HasSubstr("round 1 waits for b"));
  cluster_.Pass(absl::Seconds(5), {a, b});
  EXPECT_EQ(cluster_.sent().commands.back(), "save 2");
  EXPECT_EQ(coordinator().Heartbeat({b.life, 0, 0, ""}, cluster_.now()).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_TRUE(coordinator().Heartbeat({a.life, 0, 0, ""}, cluster_.now()).ok());
}

TEST_F(CoordinatorLastSaveTest, AFailureIsTriedAgainAndThenSaysWhatIsLost) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  BeginLastSave();
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  for (absl::Duration pause : {absl::Seconds(1), absl::Seconds(4)}) {
    FailSave();
    EXPECT_THAT(Snapshot().waiting_for, AllOf(HasSubstr("tried again in"), HasSubstr("disk full")));
    cluster_.Pass(pause - absl::Milliseconds(1), {a});
    EXPECT_FALSE(Snapshot().waiting_for.empty());
    const size_t before = cluster_.sent().save_directories.size();
    cluster_.Pass(absl::Milliseconds(1), {a});
    EXPECT_EQ(cluster_.sent().save_directories.size(), before + 1);
  }
  EXPECT_FALSE(coordinator().LastSaveOutcome().has_value());
  FailSave();
  EXPECT_EQ(Code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Error(),
              AllOf(HasSubstr("rounds 0 to 0 are in no checkpoint, because there is no checkpoint"),
                    HasSubstr("disk full")));
  EXPECT_THAT(Snapshot().alarms.at(0).text, HasSubstr("NOT SAVED: rounds 0 to 0"));
}

TEST_F(CoordinatorLastSaveTest, AServerThatIsAwayMeanwhileMayComeBackWithinALease) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  BeginLastSave();
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  ASSERT_TRUE(coordinator().OnShardAttached(1, 2, 71, 1000, "host:1", cluster_.now()).ok());
  cluster_.Pass(absl::Seconds(5), {a});
  cluster_.FinishSave();
  EXPECT_EQ(Code(), absl::StatusCode::kOk) << Error();
}

TEST_F(CoordinatorLastSaveTest, WhatAllServersHaveSavedIsPublishedThoughOneIsAway) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  BeginLastSave();
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  const std::string directory = cluster_.sent().save_directories.back();
  for (int shard : {0, 1}) {
    coordinator().OnShardEvent(
        shard, shards::ShardSaved{coordinator().server_incarnation(), directory, "part"},
        cluster_.now());
  }
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  const checkpoints::CheckpointRecord& record = cluster_.store().published.back();
  coordinator().OnCheckpointPublished(
      directory, checkpoints::PublishedCheckpoint{record.final_directory, record.round, 1},
      cluster_.now());
  ASSERT_TRUE(coordinator().OnShardAttached(1, 2, 71, 1000, "host:1", cluster_.now()).ok());
  EXPECT_EQ(Code(), absl::StatusCode::kOk) << Error();
  EXPECT_EQ(cluster_.sent().save_directories.size(), 1);
  EXPECT_THAT(Snapshot().alarms, IsEmpty());
}

TEST_F(CoordinatorLastSaveTest, AServerThatIsLostBetweenTwoTriesEndsIt) {
  const TestWorker a = cluster_.Add("a");
  cluster_.Ask(a, CoordinatorHarness::ReportOf(*cluster_.Ask(a).grant));
  ASSERT_TRUE(coordinator().Leave(a.life, "done", {}, cluster_.now()).ok());
  BeginLastSave();
  FailSave();
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  ASSERT_TRUE(coordinator().OnShardAttached(1, 2, 88, 0, "host:9", cluster_.now()).ok());
  EXPECT_EQ(Code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Error(),
              HasSubstr("the weights of shard 1 were lost before the checkpoint was complete"));
}

TEST_F(CoordinatorLastSaveTest, AServerThatStaysAwayForHalfOfThePatienceEndsIt) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  BeginLastSave();
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  cluster_.Pass(absl::Seconds(11), {a});
  EXPECT_EQ(Error(), "not over");
  cluster_.Pass(kPatience / 2 - absl::Seconds(11), {a});
  EXPECT_EQ(Code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Error(), AllOf(HasSubstr("rounds 0 to 0"), HasSubstr("shard 1 did not answer"),
                             HasSubstr("within half of --stop_timeout")));
  BeginLastSave("the coordinator stops, too");
  EXPECT_EQ(Code(), absl::StatusCode::kDataLoss) << "the loss is not forgotten";
}

TEST_F(CoordinatorLastSaveTest, WhoAsksAgainGetsNoMoreTime) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  BeginLastSave();
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  cluster_.silent_shard = 1;
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  for (absl::Duration passed; passed < kPatience / 2; passed += absl::Seconds(5)) {
    EXPECT_EQ(Error(), "not over");
    coordinator().BeginLastSave("shard 1 stops", kPatience - passed, cluster_.now());
    cluster_.Pass(absl::Seconds(5), {a});
  }
  EXPECT_THAT(Error(), HasSubstr("shard 1 did not answer"));
}

TEST_F(CoordinatorLastSaveTest, NoWorkerIsDroppedBecauseAServerIsAway) {
  const TestWorker a = cluster_.Add("a");
  ASSERT_TRUE(cluster_.Ask(a).grant.has_value());
  BeginLastSave();
  cluster_.silent_shard = 1;
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  for (int i = 0; i < 8; ++i) cluster_.Pass(absl::Seconds(5), {a});
  EXPECT_EQ(Code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(coordinator().Heartbeat({a.life, 0, 0, ""}, cluster_.now()).ok());
}

TEST_F(CoordinatorLastSaveTest, AWorkerThatHoldsItUpOnceTheServerIsBackIsDropped) {
  const auto [a, b] = BeginWhileOneOwesARound();
  for (int i = 0; i < 5; ++i) cluster_.Pass(absl::Seconds(5), {a, b});
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  cluster_.silent_shard = 1;
  cluster_.Pass(absl::Seconds(4), {a, b});
  ASSERT_TRUE(coordinator().OnShardAttached(1, 2, 71, 1000, "host:1", cluster_.now()).ok());
  cluster_.silent_shard = -1;
  cluster_.Pass(absl::Seconds(1), {a, b});
  EXPECT_TRUE(coordinator().Heartbeat({b.life, 0, 0, ""}, cluster_.now()).ok());
  cluster_.Pass(absl::Seconds(1), {a, b});
  EXPECT_EQ(coordinator().Heartbeat({b.life, 0, 0, ""}, cluster_.now()).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(cluster_.sent().commands.back(), "save 2");
}

TEST_F(CoordinatorLastSaveTest, WhoeverIsCutOffBeforeTheEndLearnsWhatIsLost) {
  const TestWorker a = cluster_.Add("a");
  EXPECT_EQ(coordinator().EndingIfCutOff().saved.status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "nothing is lost";
  cluster_.Ask(a, CoordinatorHarness::ReportOf(*cluster_.Ask(a).grant));
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  coordinator().RequestStop("psctl stop", cluster_.now());
  EXPECT_FALSE(coordinator().Ending().has_value());
  EXPECT_EQ(coordinator().EndingIfCutOff().text, "ended early, after 1 of 4 rounds");
  EXPECT_EQ(coordinator().EndingIfCutOff().saved.status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(CoordinatorLastSaveTest, WhereNothingCanBeSavedItSaysSoAtOnce) {
  BeginLastSave();
  EXPECT_EQ(cluster_.sent().commands.back(), "save 0") << "the first weights are worth keeping";

  CoordinatorHarness nowhere;
  nowhere.Start();
  nowhere.coordinator().BeginLastSave("stop", kPatience, nowhere.now());
  EXPECT_THAT(std::string(nowhere.coordinator().LastSaveOutcome()->status().message()),
              HasSubstr("--checkpoint_dir"));

  CoordinatorHarness waiting(SavingConfig());
  waiting.coordinator().BeginLastSave("stop", kPatience, waiting.now());
  EXPECT_EQ(waiting.coordinator().LastSaveOutcome()->status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(waiting.coordinator().LastSaveOutcome()->status().message()),
              HasSubstr("waits for the server of shard 0"));
}

TEST_F(CoordinatorLastSaveTest, ACheckpointAskedForMeanwhileIsServed) {
  BeginLastSave();
  cluster_.FinishSave();
  const auto ticket = coordinator().RequestCheckpoint(cluster_.now());
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  ASSERT_TRUE(coordinator().CheckpointOutcome(*ticket).has_value());
  EXPECT_TRUE(coordinator().CheckpointOutcome(*ticket)->ok());
}

TEST_F(CoordinatorLastSaveTest, AShardThatCannotGoOnEndsTheJobOnceAllIsSaved) {
  const TestWorker a = cluster_.Add("a");
  const messages::Grant grant = *cluster_.Ask(a).grant;
  coordinator().OnShardEvent(
      1, shards::ShardFailing{1000, absl::ResourceExhaustedError("out of memory")}, cluster_.now());
  EXPECT_THAT(Snapshot().alarms.at(0).text, HasSubstr("shard 1: out of memory"));
  EXPECT_THAT(cluster_.Ask(a, CoordinatorHarness::ReportOf(grant)).pending_reason,
              HasSubstr("out of memory"));
  EXPECT_FALSE(coordinator().outcome().has_value()) << "before it is saved";
  cluster_.FinishSave();
  EXPECT_EQ(coordinator().phase(), CoordinatorPhase::kFailed);
  EXPECT_FALSE(coordinator().outcome().has_value()) << "before the worker knows";
  EXPECT_EQ(Snapshot().state, "failed");
  EXPECT_THAT(Snapshot().waiting_for,
              AllOf(HasSubstr("out of memory"), HasSubstr("waits for a to leave")));
  const messages::Grant last = *cluster_.Ask(a).grant;
  EXPECT_EQ(last.kind, messages::Grant::Kind::kDone);
  EXPECT_TRUE(last.has_failed);
  EXPECT_EQ(coordinator().Ending()->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(last.reason, HasSubstr("shard 1: out of memory"));
  coordinator().RequestStop("psctl stop", cluster_.now());
  EXPECT_EQ(coordinator().phase(), CoordinatorPhase::kFailed) << "and not done";
  ASSERT_TRUE(coordinator().Leave(a.life, "it has failed", {}, cluster_.now()).ok());
  EXPECT_THAT(cluster_.sent().commands.back(), HasSubstr("stop: shard 1: out of memory"));
  EXPECT_EQ(coordinator().outcome()->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(coordinator().outcome()->message()),
              AllOf(HasSubstr("shard 1: out of memory"),
                    HasSubstr("all weights are saved in ckpt/round-00000001")));
}

TEST_F(CoordinatorLastSaveTest, WhatAShardOfAnEarlierLifeReportsEndsNoJob) {
  coordinator().OnShardEvent(
      1, shards::ShardFailing{999, absl::ResourceExhaustedError("out of memory")}, cluster_.now());
  EXPECT_THAT(Snapshot().alarms, IsEmpty());
  EXPECT_THAT(cluster_.sent().save_directories, IsEmpty());
  EXPECT_TRUE(cluster_.Ask(cluster_.Add("a")).grant.has_value());
}

TEST_F(CoordinatorLastSaveTest, WithoutAFolderAShardThatCannotGoOnEndsTheJobAtOnce) {
  CoordinatorHarness nowhere;
  nowhere.Start();
  nowhere.coordinator().OnShardEvent(
      0, shards::ShardFailing{1000, absl::ResourceExhaustedError("full")}, nowhere.now());
  EXPECT_EQ(nowhere.coordinator().phase(), CoordinatorPhase::kFailed);
  EXPECT_TRUE(nowhere.coordinator().outcome().has_value()) << "nobody has to be told";
}

TEST_F(CoordinatorLastSaveTest, AShardThatIsLostWhileItFailsEndsTheJob) {
  const TestWorker a = cluster_.Add("a");
  coordinator().OnShardEvent(
      1, shards::ShardFailing{1000, absl::ResourceExhaustedError("out of memory")}, cluster_.now());
  cluster_.Pass(kPatience / 2, {a});
  ASSERT_EQ(cluster_.sent().save_directories.size(), 1);
  coordinator().OnShardDisconnected(1, 71, cluster_.now());
  cluster_.Pass(absl::Seconds(11), {a});
  EXPECT_EQ(coordinator().phase(), CoordinatorPhase::kFailed);
  EXPECT_THAT(Snapshot().waiting_for,
              AllOf(HasSubstr("out of memory"), HasSubstr("shard 1 did not answer"),
                    HasSubstr("waits for a to come back")));
  EXPECT_EQ(coordinator().Heartbeat({a.life, 0, 0, "push"}, cluster_.now()).status().code(),
            absl::StatusCode::kAborted)
      << "it would push for ever";
}

TEST_F(CoordinatorLastSaveTest, AFailedJobDoesNotWaitForWorkersThatAreDead) {
  const TestWorker a = cluster_.Add("a");
  coordinator().OnShardEvent(
      1, shards::ShardFailing{1000, absl::ResourceExhaustedError("out of memory")}, cluster_.now());
  cluster_.FinishSave();
  cluster_.Pass(absl::Seconds(9));
  EXPECT_FALSE(coordinator().outcome().has_value());
  cluster_.Pass(absl::Seconds(2));
  EXPECT_TRUE(coordinator().outcome().has_value()) << "its lease is over";
}

TEST_F(CoordinatorLastSaveTest, AStoppedJobWaitsForRoundsNoLongerThanTheTimeoutAndSaysForWhom) {
  const TestWorker a = cluster_.Add("a");
  const TestWorker b = cluster_.Add("b");
  const messages::Grant first = *cluster_.Ask(a).grant;
  cluster_.Ask(b);
  const messages::Grant grant = *cluster_.Ask(a, CoordinatorHarness::ReportOf(first)).grant;
  coordinator().RequestStop("psctl stop", cluster_.now());
  cluster_.FinishSave();  // checkpoint of the complete rounds
  cluster_.Ask(a, CoordinatorHarness::ReportOf(grant));
  for (int i = 0; i < 9; ++i) cluster_.Pass(absl::Seconds(6), {a, b});
  EXPECT_TRUE(coordinator().IsMember(b.life));
  EXPECT_EQ(Snapshot().waiting_for,
            "round 1 waits for b, open for 54s; the wait ends in at most 6s");
  EXPECT_THAT(
      Snapshot().requests.at(0).way_out,
      HasSubstr("a worker that does not deliver the round is dropped after --stop_timeout=1m"));
  cluster_.Pass(absl::Seconds(6), {a, b});
  EXPECT_FALSE(coordinator().IsMember(b.life));
  EXPECT_EQ(cluster_.sent().commands.back(), "save 2");
  cluster_.FinishSave();
  EXPECT_EQ((*coordinator().Ending())->text,
            "stopped after 2 of 4 rounds, and did not wait longer than --stop_timeout=1m for b "
            "(round 1)");
  ASSERT_TRUE(coordinator().Leave(a.life, "done", {}, cluster_.now()).ok());
  EXPECT_TRUE(coordinator().outcome().has_value());
}

TEST_F(CoordinatorLastSaveTest, WhoSendsHeartbeatsOnlyHoldsUpAStopNoLongerThanTheTimeout) {
  const TestWorker a = cluster_.Add("a");
  for (int i = 0; i < 4; ++i) cluster_.Pass(absl::Seconds(5), {a});
  coordinator().RequestStop("psctl stop", cluster_.now());
  cluster_.FinishSave();
  for (int i = 0; i < 11; ++i) cluster_.Pass(absl::Seconds(5), {a});
  EXPECT_FALSE(coordinator().outcome().has_value());
  cluster_.Pass(absl::Seconds(5), {a});
  EXPECT_TRUE(coordinator().outcome().has_value());
}

TEST_F(CoordinatorLastSaveTest, ALateRoundIsWaitedForAtTheEndNoLongerThanItMayTake) {
  Coordinator::Config config = SavingConfig();
  config.job.quorum = 1;
  config.job.min_workers = 1;
  config.exit_when_done = true;
  config.round_timeout = absl::Minutes(3);
  CoordinatorHarness cluster(config);
  cluster.Start();
  const TestWorker a = cluster.Add("a");
  const TestWorker b = cluster.Add("b");
  GrantAnswer answer = cluster.Ask(a);
  answer = cluster.Ask(a, CoordinatorHarness::ReportOf(*answer.grant));
  ASSERT_TRUE(cluster.Ask(b).grant.has_value() || answer.grant.has_value());
  while (answer.grant.has_value() && answer.grant->kind == messages::Grant::Kind::kTrain) {
    cluster.Ask(b);
    answer = cluster.Ask(a, CoordinatorHarness::ReportOf(*answer.grant));
  }
  if (answer.grant.has_value()) cluster.Ask(a, CoordinatorHarness::ReportOf(*answer.grant));
  cluster.FinishSave();
  ASSERT_EQ(cluster.coordinator().phase(), CoordinatorPhase::kDone);
  ASSERT_TRUE(cluster.coordinator().Leave(a.life, "done", {}, cluster.now()).ok());
  for (int i = 0; i < 34; ++i) cluster.Pass(absl::Seconds(5), {b});
  EXPECT_FALSE(cluster.coordinator().outcome().has_value()) << "it may still hand it in";
  for (int i = 0; i < 2; ++i) cluster.Pass(absl::Seconds(5), {b});
  EXPECT_TRUE(cluster.coordinator().outcome().has_value());
}

class EndOfJobTest : public CoordinatorLastSaveTest {
 protected:
  explicit EndOfJobTest(bool exit_when_done = false, const std::string& fallback = "")
      : CoordinatorLastSaveTest([&] {
          Coordinator::Config config = SavingConfig();
          config.exit_when_done = exit_when_done;
          config.fallback_dir = fallback;
          return config;
        }()) {}

  // Runs the job to its end, until the last checkpoint is being written.
  void SetUp() override {
    cluster_.Start();
    worker_ = cluster_.Add("a");
    GrantAnswer answer = cluster_.Ask(worker_);
    while (answer.grant.has_value()) {
      answer = cluster_.Ask(worker_, CoordinatorHarness::ReportOf(*answer.grant));
    }
    ASSERT_EQ(cluster_.sent().save_directories.size(), 1);
  }

  TestWorker worker_;
};

TEST_F(EndOfJobTest, AServerThatStaysUpLetsTheWorkersGoAndTriesOn) {
  FailSave();
  EXPECT_EQ(cluster_.Ask(worker_).grant->kind, messages::Grant::Kind::kDone);
  EXPECT_THAT(Snapshot().waiting_for, HasSubstr("the last checkpoint failed"));
  for (int i = 0; i < 10; ++i) {
    cluster_.Pass(checkpoints::LastSave::kLongestPause, {worker_});
    FailSave();
  }
  EXPECT_EQ(cluster_.sent().save_directories.size(), 11);
  EXPECT_FALSE(coordinator().LastSaveOutcome().has_value());
  cluster_.Pass(checkpoints::LastSave::kLongestPause, {worker_});
  cluster_.FinishSave();
  EXPECT_EQ((*coordinator().LastSaveOutcome())->path, "ckpt/round-00000004");
  EXPECT_EQ(Snapshot().waiting_for, "");
  EXPECT_FALSE(coordinator().outcome().has_value());
}

TEST_F(EndOfJobTest, ASignalWhileItFailsGivesItOneMoreLap) {
  FailSave();
  cluster_.Pass(absl::Seconds(5));
  FailSave();
  BeginLastSave("told to stop");
  EXPECT_EQ(cluster_.sent().save_directories.size(), 3) << "at once";
  for (int i = 0; i < checkpoints::LastSave::kTries; ++i) {
    EXPECT_FALSE(coordinator().LastSaveOutcome().has_value());
    FailSave();
    cluster_.Pass(absl::Seconds(5));
  }
  EXPECT_THAT(Error(), HasSubstr("rounds 0 to 3 are in no checkpoint"));
}

class ExitWhenDoneTest : public EndOfJobTest {
 protected:
  ExitWhenDoneTest() : EndOfJobTest(/*exit_when_done=*/true, /*fallback=*/"spare") {}
};

TEST_F(ExitWhenDoneTest, TheFallbackTakesWhatTheFolderDoesNot) {
  ASSERT_TRUE(coordinator().Leave(worker_.life, "done", {}, cluster_.now()).ok());
  for (int i = 0; i < checkpoints::LastSave::kTries; ++i) {
    EXPECT_FALSE(coordinator().outcome().has_value());
    FailSave();
    cluster_.Pass(absl::Seconds(5));
  }
  EXPECT_EQ(cluster_.sent().save_directories.back(), "spare/round-00000004.1000-4.tmp");
  cluster_.FinishSave();
  EXPECT_EQ((*coordinator().LastSaveOutcome())->path, "spare/round-00000004");
  EXPECT_TRUE((*coordinator().LastSaveOutcome())->is_in_fallback);
  EXPECT_TRUE(coordinator().outcome().has_value());
}

TEST_F(ExitWhenDoneTest, WhoOnlySendsHeartbeatsIsWaitedForForAMinute) {
  cluster_.FinishSave();
  for (int i = 0; i < 11; ++i) cluster_.Pass(absl::Seconds(5), {worker_});
  EXPECT_FALSE(coordinator().outcome().has_value());
  EXPECT_THAT(Snapshot().waiting_for, HasSubstr("waits for a to leave"));
  cluster_.Pass(absl::Seconds(10), {worker_});
  EXPECT_TRUE(coordinator().outcome().has_value());
}

TEST_F(ExitWhenDoneTest, AfterAResumeFromTheFallbackTheFolderGetsItsCheckpoint) {
  RestoreChoice choice{.source = shards::CheckpointSource{"spare/round-00000004"},
                       .state = checkpoints::CoordinatorState{},
                       .server_incarnation = 2000};
  choice.state->ledger.next_round = 4;
  Coordinator::Config config = SavingConfig();
  config.fallback_dir = "spare";
  CoordinatorHarness resumed(config);
  resumed.Start(choice);
  EXPECT_THAT(resumed.sent().save_directories, ElementsAre("ckpt/round-00000004.2000-1.tmp"));
  choice.source = shards::CheckpointSource{"ckpt/round-00000004"};
  CoordinatorHarness complete(config);
  complete.Start(choice);
  EXPECT_THAT(complete.sent().save_directories, IsEmpty());
}

TEST_F(ExitWhenDoneTest, AServerThatIsSilentForLongIsWaitedForAndSaves) {
  ASSERT_TRUE(coordinator().Leave(worker_.life, "done", {}, cluster_.now()).ok());
  for (int i = 1; i <= checkpoints::LastSave::kTries + 1; ++i) {
    cluster_.silent_shard = 1;
    cluster_.Pass(absl::Seconds(11));
    cluster_.Pass(absl::Seconds(11));
    EXPECT_FALSE(coordinator().LastSaveOutcome().has_value()) << Error();
    EXPECT_FALSE(coordinator().outcome().has_value());
    cluster_.silent_shard = -1;
    cluster_.Pass(absl::Seconds(1));
    EXPECT_EQ(cluster_.sent().save_directories.size(), i + 1) << "a silence is no failed try";
  }
  cluster_.FinishSave();
  ASSERT_EQ(Code(), absl::StatusCode::kOk) << Error();
  EXPECT_EQ((*coordinator().LastSaveOutcome())->path, "ckpt/round-00000004");
  EXPECT_TRUE(coordinator().outcome().has_value());
}

TEST_F(ExitWhenDoneTest, ExitsAfterTheLastTry) {
  ASSERT_TRUE(coordinator().Leave(worker_.life, "done", {}, cluster_.now()).ok());
  for (int i = 0; i <= checkpoints::LastSave::kTries; ++i) {
    EXPECT_FALSE(coordinator().outcome().has_value());
    FailSave();
    cluster_.Pass(absl::Seconds(5));
  }
  EXPECT_TRUE(coordinator().outcome().has_value());
  EXPECT_THAT(Error(), HasSubstr("rounds 0 to 3 are in no checkpoint"));
}

}  // namespace
}  // namespace lodestar::coordinator
