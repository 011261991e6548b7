// SPDX-License-Identifier: Apache-2.0

// Tests that journals are compared before a worker is answered, see
// server/coordinator/shards/journal_comparison.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "server/coordinator/testing/coordinator_fixture.h"

namespace lodestar::coordinator {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kJournal = 11;
constexpr uint64_t kNewJournal = 99;

// Fixture with two servers, a coordinator that keeps a journal, and a worker that has a grant.
class CoordinatorComparisonTest : public testing::Test {
 protected:
  CoordinatorComparisonTest() : cluster_(Config()) {
    cluster_.Start();
    worker_ = cluster_.Add("a");
    EXPECT_TRUE(cluster_.Ask(worker_).grant.has_value());
  }

  static Coordinator::Config Config() {
    Coordinator::Config config = TestConfig();
    config.checkpoint_dir = "/run";
    config.journal.folder = "/journal/coordinator";
    config.journal.new_journal_id = kNewJournal;
    return config;
  }

  // Replaces the coordinator's process by a new one, which finds a journal that ends with `record`.
  void RestartWith(uint64_t record) {
    cluster_.config().journal.end = {kJournal, record};
    cluster_.Restart();
  }

  absl::Status Attach(int shard, const shards::JournalPlace& journal, uint64_t memory_of = 1000) {
    return cluster_.coordinator().OnShardAttached(
        shard, 2, 70 + shard, memory_of, absl::StrCat("host:", shard), cluster_.now(), journal);
  }

  // Returns the journal place of a server that has carried out the commands of the coordinator's
  // records up to `record`.
  static shards::JournalPlace Follows(uint64_t record, int64_t highest_round) {
    return {.first_segment = 1,
            .end = 0,
            .follows = {kJournal, record},
            .highest_round = highest_round};
  }

  void ExpectNoWorkerIsAnswered() {
    Coordinator& coordinator = cluster_.coordinator();
    const absl::StatusCode unavailable = absl::StatusCode::kUnavailable;
    EXPECT_THAT(coordinator.Heartbeat({worker_.life, 0, 0, "compute"}, cluster_.now()).status(),
                StatusIs(unavailable));
    EXPECT_THAT(coordinator.RequestGrant(worker_.life, {}, cluster_.now()).status(),
                StatusIs(unavailable));
    EXPECT_THAT(coordinator.Leave(worker_.life, "", {}, cluster_.now()), StatusIs(unavailable));
    TestWorker again = worker_;
    EXPECT_THAT(cluster_.Register(again).status(), StatusIs(unavailable));
    EXPECT_TRUE(coordinator.may_not_keep());
  }

  CoordinatorHarness cluster_;
  TestWorker worker_;
};

TEST_F(CoordinatorComparisonTest, AnswersNoWorkerBeforeAllServersHaveAttached) {
  RestartWith(50);
  ExpectNoWorkerIsAnswered();
  ASSERT_OK(Attach(0, Follows(50, 0)));
  ExpectNoWorkerIsAnswered();
  EXPECT_FALSE(cluster_.coordinator().Snapshot(cluster_.now()).open_round.has_value());
  // A minute is longer than a lease. Before shard 1 attaches, no worker can renew its lease.
  cluster_.Pass(absl::Minutes(1));
  cluster_.sent().commands.clear();
  ASSERT_OK(Attach(1, Follows(49, 0)));
  EXPECT_FALSE(cluster_.coordinator().may_not_keep());
  cluster_.Pass(absl::Seconds(1));
  cluster_.Heartbeat(worker_);
  EXPECT_THAT(cluster_.sent().commands, Contains(HasSubstr("again to 0: open 0")));
  EXPECT_EQ(cluster_.store().restores, 1);
}

TEST_F(CoordinatorComparisonTest, LifeWhoseProcessEndsMeanwhileEndsWithItsLease) {
  const TestWorker other = cluster_.Add("b");
  RestartWith(50);
  ASSERT_OK(Attach(0, Follows(50, 0)));
  cluster_.sent().commands.clear();
  cluster_.coordinator().OnProcessEnded(worker_.life, cluster_.now());
  cluster_.Pass(absl::Milliseconds(100));
  EXPECT_THAT(cluster_.sent().commands, IsEmpty()) << "nothing is kept that shards could follow";
  ASSERT_OK(Attach(1, Follows(49, 0)));
  cluster_.Pass(absl::Milliseconds(100));
  EXPECT_THAT(cluster_.sent().commands, Each(Not(HasSubstr("drop"))));
  cluster_.coordinator().OnProcessEnded(worker_.life, cluster_.now());
  cluster_.Pass(absl::Milliseconds(100));
  EXPECT_THAT(cluster_.sent().commands, Contains(HasSubstr("drop")));
}

TEST_F(CoordinatorComparisonTest, TellsTheNormOfARoundOnlyOnceJournalsAreCompared) {
  for (const bool is_lost : {false, true}) {
    SCOPED_TRACE(is_lost);
    RestartWith(50);
    const uint64_t servers = cluster_.coordinator().server_incarnation();
    const auto tell_sums = [&](int shard) {
      cluster_.coordinator().OnShardEvent(shard, shards::ShardSquareSums{servers, Round(0), {1.0}},
                                          cluster_.now());
    };
    ASSERT_OK(Attach(0, Follows(50, 0), servers));
    tell_sums(0);
    cluster_.sent().commands.clear();
    tell_sums(1);
    if (is_lost) {
      ASSERT_OK(Attach(1, Follows(51, 17), servers));
      tell_sums(1);
    }
    cluster_.Pass(absl::Milliseconds(100));
    EXPECT_THAT(cluster_.sent().commands, IsEmpty());
    if (is_lost) return;
    ASSERT_OK(Attach(1, Follows(50, 0), servers));
    tell_sums(1);
    cluster_.Pass(absl::Milliseconds(100));
    EXPECT_THAT(cluster_.sent().commands, Contains(HasSubstr("norm 0 2")));
  }
}

TEST_F(CoordinatorComparisonTest, WaitsWhereShardFollowsRecordThatTheJournalLacks) {
  RestartWith(50);
  cluster_.sent().commands.clear();
  ASSERT_OK(Attach(0, Follows(50, 0)));
  ASSERT_OK(Attach(1, Follows(51, 17)));
  ExpectNoWorkerIsAnswered();
  EXPECT_THAT(cluster_.observer().alarms, Contains(HasSubstr("--accept_loss=17")));
  const ClusterSnapshot snapshot = cluster_.coordinator().Snapshot(cluster_.now());
  EXPECT_EQ(snapshot.state, "journal_lost");
  EXPECT_THAT(snapshot.waiting_for, HasSubstr("shard 1"));
  // The coordinator answers no worker, whatever happens next.
  cluster_.Pass(absl::Minutes(1));
  cluster_.coordinator().OnShardDisconnected(1, 71, cluster_.now());
  ASSERT_OK(Attach(1, Follows(51, 17)));
  EXPECT_THAT(cluster_.coordinator().Pause("no", cluster_.now()), Not(IsOk()));
  EXPECT_THAT(cluster_.coordinator().RequestCheckpoint(cluster_.now()).status(), Not(IsOk()));
  ExpectNoWorkerIsAnswered();
  EXPECT_THAT(cluster_.sent().commands, IsEmpty());
  EXPECT_EQ(cluster_.store().restores, 1);
  EXPECT_THAT(cluster_.store().discarded, IsEmpty());
}

TEST_F(CoordinatorComparisonTest, StopBeforeComparisonSavesNothing) {
  RestartWith(50);
  ASSERT_OK(Attach(0, Follows(50, 0)));
  ASSERT_OK(Attach(1, Follows(51, 17)));
  cluster_.sent().commands.clear();
  cluster_.coordinator().BeginLastSave("SIGTERM", absl::Seconds(10), cluster_.now());
  ASSERT_TRUE(cluster_.coordinator().LastSaveOutcome().has_value());
  EXPECT_THAT(cluster_.coordinator().LastSaveOutcome()->status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  cluster_.coordinator().RequestStop("psctl stop", cluster_.now());
  EXPECT_TRUE(cluster_.coordinator().may_not_keep());
  EXPECT_THAT(cluster_.sent().commands, Each(Not(HasSubstr("save"))));
}

TEST_F(CoordinatorComparisonTest, AcceptedLossGoesBackWithAnotherJournalAndLaterLife) {
  cluster_.config().journal.accepted_loss = Round(17);
  RestartWith(50);
  EXPECT_EQ(cluster_.coordinator().journal_id(), kJournal);
  ASSERT_OK(Attach(0, Follows(50, 0)));
  ASSERT_OK(Attach(1, Follows(51, 17), /*memory_of=*/5000));
  EXPECT_EQ(cluster_.store().restores, 2);
  EXPECT_TRUE(cluster_.store().accepts_loss);
  EXPECT_EQ(cluster_.coordinator().journal_id(), kNewJournal);
  EXPECT_THAT(cluster_.observer().alarms, Contains(HasSubstr("--accept_loss=17 was given")));
  cluster_.coordinator().OnRestoreChosen(
      RestoreChoice{.source = shards::InitialSource{}, .server_incarnation = 2000}, cluster_.now());
  EXPECT_GT(cluster_.coordinator().server_incarnation(), 5000);
  cluster_.LoadAll();
  EXPECT_EQ(cluster_.coordinator().phase(), CoordinatorPhase::kRunning);
}

TEST_F(CoordinatorComparisonTest, AcceptedLossOfAnotherRoundIsRefused) {
  cluster_.config().journal.accepted_loss = Round(16);
  RestartWith(50);
  ASSERT_OK(Attach(0, Follows(50, 0)));
  ASSERT_OK(Attach(1, Follows(51, 17)));
  ASSERT_TRUE(cluster_.coordinator().outcome().has_value());
  EXPECT_THAT(*cluster_.coordinator().outcome(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("17")));
  EXPECT_EQ(cluster_.store().restores, 1);
}

TEST_F(CoordinatorComparisonTest, ForgottenAcceptedLossHasNoEffect) {
  cluster_.config().journal.accepted_loss = Round(17);
  RestartWith(50);
  ASSERT_OK(Attach(0, Follows(50, 0)));
  ASSERT_OK(Attach(1, Follows(50, 0)));
  EXPECT_EQ(cluster_.coordinator().phase(), CoordinatorPhase::kRunning);
  EXPECT_EQ(cluster_.store().restores, 1);
  EXPECT_EQ(cluster_.coordinator().journal_id(), kJournal);
}

TEST_F(CoordinatorComparisonTest, PromotedReplicaGoesBackWithoutFlag) {
  cluster_.config().journal.is_promoted = true;
  RestartWith(50);
  ASSERT_OK(Attach(0, Follows(50, 0)));
  ASSERT_OK(Attach(1, Follows(51, 17)));
  EXPECT_EQ(cluster_.store().restores, 2);
}

TEST_F(CoordinatorComparisonTest, ShardWithOlderMemoryTakesAllBackOnceAllAreCompared) {
  RestartWith(50);
  ASSERT_OK(Attach(1, Follows(20, -1), /*memory_of=*/900));
  EXPECT_EQ(cluster_.store().restores, 1);
  ASSERT_OK(Attach(0, Follows(50, 0)));
  EXPECT_EQ(cluster_.store().restores, 2);
  EXPECT_THAT(cluster_.observer().alarms, Contains(HasSubstr("shard 1")));
}

// When a shard acknowledges a contribution, it also names its last record on disk. It does not wait
// for its next sign of life.
TEST_F(CoordinatorComparisonTest, ShardThatLacksRecordOfCountedContributionTakesAllBack) {
  const messages::Grant grant = *cluster_.Ask(worker_).grant;
  cluster_.coordinator().NoteJournalEnd(1, 77);
  cluster_.Ask(worker_, CoordinatorHarness::ReportOf(grant));
  RestartWith(50);
  ASSERT_OK(Attach(0, Follows(50, 0)));
  shards::JournalPlace behind = Follows(50, 0);
  behind.end = 76;
  ASSERT_OK(Attach(1, behind));
  EXPECT_EQ(cluster_.store().restores, 2);
  EXPECT_THAT(cluster_.observer().alarms, Contains(HasSubstr("record 77 was already on disk")));
}

// The new coordinator has neither a journal nor a checkpoint.
TEST_F(CoordinatorComparisonTest, NewCoordinatorWaitsWhereShardKnowsRoundsOfAnotherJournal) {
  CoordinatorHarness other(Config());
  ASSERT_OK(other.coordinator().OnShardAttached(0, 2, 70, 0, "host:0", other.now(), {}));
  ASSERT_OK(
      other.coordinator().OnShardAttached(1, 2, 71, 1000, "host:1", other.now(), Follows(51, 17)));
  EXPECT_EQ(other.store().restores, 0);
  EXPECT_EQ(other.coordinator().Snapshot(other.now()).state, "journal_lost");
}

TEST_F(CoordinatorComparisonTest, DamagedJournalWaitsUntilItsLossIsAccepted) {
  for (const bool is_accepted : {false, true}) {
    SCOPED_TRACE(is_accepted);
    Coordinator::Config config = Config();
    config.journal.damage = "00000001.journal at byte 7 is damaged";
    if (is_accepted) config.journal.accepted_loss = Round(17);
    CoordinatorHarness other(config);
    ASSERT_OK(other.coordinator().OnShardAttached(0, 2, 70, 1000, "host:0", other.now(),
                                                  Follows(51, 17)));
    ASSERT_OK(other.coordinator().OnShardAttached(1, 2, 71, 1000, "host:1", other.now(),
                                                  Follows(50, 16)));
    EXPECT_EQ(other.store().restores, is_accepted ? 1 : 0);
    EXPECT_EQ(other.coordinator().may_not_keep(), !is_accepted);
    EXPECT_EQ(other.coordinator().Snapshot(other.now()).state == "journal_lost", !is_accepted);
    EXPECT_THAT(other.observer().alarms, Contains(HasSubstr("00000001.journal")));
  }
}

TEST_F(CoordinatorComparisonTest, DamagedJournalOfWhichACheckpointHasAllIsNamedAndLeftBehind) {
  Coordinator::Config config = Config();
  config.journal.damage = "00000001.journal at byte 7 is damaged";
  config.journal.newest = shards::KnownCheckpoint{"/run/round-00000018", Round(18), 1000, {}};
  config.journal.newest->journal.journal_id = kJournal;
  config.journal.newest->journal.is_complete = true;
  CoordinatorHarness other(config);
  for (const int shard : {0, 1}) {
    ASSERT_OK(other.coordinator().OnShardAttached(shard, 2, 70 + shard, 1000, "host:0", other.now(),
                                                  Follows(50, 17)));
  }
  EXPECT_EQ(other.store().restores, 1);
  EXPECT_FALSE(other.coordinator().may_not_keep());
  EXPECT_THAT(other.observer().alarms, Contains(HasSubstr("00000001.journal")));
}

TEST_F(CoordinatorComparisonTest, MarksLastCheckpointAsCompleteAndReopensItBeforeWork) {
  Coordinator& coordinator = cluster_.coordinator();
  const messages::Grant first = *cluster_.Ask(worker_).grant;
  coordinator.BeginLastSave("server 1 stops", absl::Seconds(60), cluster_.now());
  EXPECT_FALSE(cluster_.Ask(worker_, CoordinatorHarness::ReportOf(first)).grant.has_value());
  cluster_.FinishSave();
  const checkpoints::CheckpointRecord record = cluster_.store().published.back();
  EXPECT_TRUE(record.journal.is_complete);
  EXPECT_EQ(record.journal.journal_id, kNewJournal);
  EXPECT_EQ(record.journal.shard_records.size(), 2);
  // The job continues from a complete checkpoint.
  cluster_.config().journal.newest =
      shards::KnownCheckpoint{record.final_directory, record.round, 1000, record.journal};
  cluster_.config().journal.end = {kNewJournal, 70};
  cluster_.Restart();
  cluster_.AttachAgain();
  EXPECT_FALSE(cluster_.Ask(worker_).grant.has_value());
  ASSERT_EQ(cluster_.store().marked.size(), 1);
  EXPECT_EQ(cluster_.store().marked[0].path, record.final_directory);
  EXPECT_FALSE(cluster_.store().marked[0].is_complete);
  // The first removal of the mark fails.
  cluster_.coordinator().OnCheckpointMarked(false, absl::ResourceExhaustedError("disk full"),
                                            cluster_.now());
  EXPECT_FALSE(cluster_.Ask(worker_).grant.has_value());
  const auto is_alarm_over = [this] {
    return cluster_.coordinator().Snapshot(cluster_.now()).alarms.front().over_age.has_value();
  };
  EXPECT_FALSE(is_alarm_over());
  cluster_.Pass(absl::Seconds(2), {worker_});
  EXPECT_EQ(cluster_.store().marked.size(), 2);
  cluster_.coordinator().OnCheckpointMarked(false, absl::OkStatus(), cluster_.now());
  EXPECT_TRUE(is_alarm_over());
  EXPECT_TRUE(cluster_.Ask(worker_).grant.has_value());
}

TEST_F(CoordinatorComparisonTest, HandsOutNoWorkWhileACompleteCheckpointIsPublished) {
  Coordinator& coordinator = cluster_.coordinator();
  const messages::Grant first = *cluster_.Ask(worker_).grant;
  const std::string asker = ReasonOfStop(1);
  coordinator.BeginLastSave(asker, absl::Seconds(60), cluster_.now());
  cluster_.Ask(worker_, CoordinatorHarness::ReportOf(first));
  const std::string directory = cluster_.sent().save_directories.back();
  for (int shard : {0, 1}) {
    coordinator.OnShardEvent(
        shard, shards::ShardSaved{coordinator.server_incarnation(), directory, "part"},
        cluster_.now());
  }
  const checkpoints::CheckpointRecord record = cluster_.store().published.back();
  ASSERT_TRUE(record.journal.is_complete);
  // The old process of this server waited for the last save before its exit. Now a new process has
  // loaded its memory.
  coordinator.OnShardEvent(
      1, shards::ShardLoaded{coordinator.server_incarnation(), absl::OkStatus()}, cluster_.now());
  EXPECT_FALSE(cluster_.Ask(worker_).grant.has_value());
  EXPECT_TRUE(cluster_.store().marked.empty());
  coordinator.OnCheckpointPublished(
      directory,
      checkpoints::PublishedCheckpoint{.path = record.final_directory, .round = record.round},
      cluster_.now());
  EXPECT_FALSE(cluster_.Ask(worker_).grant.has_value());
  ASSERT_EQ(cluster_.store().marked.size(), 1);
  EXPECT_FALSE(cluster_.store().marked[0].is_complete);
  coordinator.OnCheckpointMarked(false, absl::OkStatus(), cluster_.now());
  EXPECT_TRUE(cluster_.Ask(worker_).grant.has_value());
}

}  // namespace
}  // namespace lodestar::coordinator
