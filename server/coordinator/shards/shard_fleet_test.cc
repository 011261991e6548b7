// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/shards/shard_fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lodestar::shards {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using Kind = AttachVerdict::Kind;
using Loss = ShardLoss::Kind;

constexpr uint64_t kLife = 1000;  // the server incarnation
constexpr absl::Duration kLease = absl::Seconds(10);

// Fixture with three servers that serve, instances 70, 71 and 72, in a job that is running.
class ShardFleetTest : public testing::Test {
 protected:
  ShardFleetTest() {
    for (const int shard : {0, 1, 2}) fleet_.Attach(From(shard), now_);
    fleet_.BeginIncarnation(kLife);
    fleet_.MarkLoading(now_);
    for (const int shard : {0, 1, 2}) fleet_.MarkServing(shard, now_);
    EXPECT_TRUE(fleet_.FinishLoading());
  }

  static Attachment From(int shard) {
    return {.shard = shard,
            .num_shards = 3,
            .instance_id = 70 + static_cast<uint64_t>(shard),
            .memory_of = kLife,
            .address = "host:1"};
  }
  static Attachment With(Attachment attachment, JournalPlace journal) {
    attachment.journal = journal;
    return attachment;
  }
  static Attachment WithMemoryOf(Attachment attachment, uint64_t server_incarnation) {
    attachment.memory_of = server_incarnation;
    return attachment;
  }
  // Returns an attachment of another process, which does not have the memory of the previous
  // process.
  static Attachment Other(int shard) {
    Attachment other = From(shard);
    other.instance_id = 99;
    other.memory_of = 0;
    return other;
  }

  Kind KindOf(const Attachment& attachment) const {
    return fleet_.JudgeAttach(attachment, facts_).kind;
  }
  // Expects that the server takes its shard, and that the memory is lost because of `loss`.
  void ExpectLoss(const Attachment& attachment, Loss loss) const {
    const AttachVerdict verdict = fleet_.JudgeAttach(attachment, facts_);
    EXPECT_EQ(verdict.kind, Kind::kLoses);
    EXPECT_EQ(verdict.loss.kind, loss);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  ShardFleet fleet_{3, kLease, now_};
  AttachFacts facts_ = {.has_memory = true, .is_ready = true, .address_in_map = "host:1"};
};

TEST_F(ShardFleetTest, RefusesServerThatTakesClusterToHaveOtherNumberOfShards) {
  Attachment wrong = From(1);
  wrong.num_shards = 4;
  EXPECT_EQ(KindOf(wrong), Kind::kDoesNotFit);
  for (const int shard : {-1, 3}) EXPECT_EQ(KindOf(From(shard)), Kind::kDoesNotFit);
}

TEST_F(ShardFleetTest, ServerWithItsMemoryGoesOnWithoutChangingAnythingBeforehand) {
  const ShardFleet::Memory before = fleet_.memory();
  EXPECT_EQ(fleet_.JudgeAttach(From(1), facts_), AttachVerdict{.kind = Kind::kGoesOn});
  EXPECT_EQ(fleet_.memory(), before);
  EXPECT_TRUE(fleet_.GoesOn(1, 71, kLife, /*has_memory=*/true));
  EXPECT_FALSE(fleet_.GoesOn(1, 71, kLife, /*has_memory=*/false));
  EXPECT_FALSE(fleet_.GoesOn(1, 71, kLife - 1, /*has_memory=*/true));
  EXPECT_FALSE(fleet_.GoesOn(1, 70, kLife, /*has_memory=*/true));
}

TEST_F(ShardFleetTest, ServerThatGoesOnIsBackAtItsAddress) {
  ASSERT_TRUE(fleet_.Disconnect(1, now_));
  EXPECT_FALSE(fleet_.all_serving());
  now_ += absl::Seconds(1);
  Attachment moved = With(From(1), {.first_segment = 3, .process_id = 5});
  moved.address = "host:9";
  EXPECT_EQ(fleet_.JudgeAttach(moved, facts_),
            (AttachVerdict{.kind = Kind::kGoesOn, .is_another_process = true, .has_moved = true}));
  fleet_.GoOn(moved, now_);
  EXPECT_TRUE(fleet_.all_serving());
  EXPECT_EQ(fleet_.back_at(), now_);
  EXPECT_EQ(fleet_.servers()[1].address, "host:9");
  EXPECT_EQ(fleet_.servers()[1].process_id, 5);
  EXPECT_FALSE(fleet_.JudgeAttach(moved, facts_).is_another_process);
  facts_.address_in_map.reset();
  EXPECT_FALSE(fleet_.JudgeAttach(moved, facts_).has_moved);
}

TEST_F(ShardFleetTest, RefusesSecondServerUnlessFirstIsAwayOrLost) {
  EXPECT_EQ(KindOf(Other(1)), Kind::kHeld);
  fleet_.Disconnect(1, now_);
  EXPECT_EQ(KindOf(Other(1)), Kind::kLoses);
  fleet_.Lose(1, now_);
  EXPECT_EQ(KindOf(Other(1)), Kind::kTakes);
  fleet_.Attach(Other(1), now_);
  EXPECT_TRUE(fleet_.IsHeldBy(1, 99));
  EXPECT_EQ(fleet_.servers()[1].state, ShardFleet::State::kAttached);
}

TEST_F(ShardFleetTest, RefusesCallThatIsOlderThanWhatItsServerHasLoaded) {
  EXPECT_EQ(KindOf(WithMemoryOf(From(1), 0)), Kind::kLate);
  // If the call's memory is of a later incarnation of the servers, the call is not late.
  ExpectLoss(WithMemoryOf(From(1), kLife + 1), Loss::kMissedAssignment);
  fleet_.MarkLoading(now_);
  ExpectLoss(WithMemoryOf(From(1), 0), Loss::kMissedAssignment);
  facts_.has_memory = false;
  ExpectLoss(WithMemoryOf(From(1), 0), Loss::kCutOff);
}

TEST_F(ShardFleetTest, RefusesProcessWhoseJournalAnotherGoesOnWith) {
  fleet_.GoOn(With(From(1), {.first_segment = 5}), now_);
  EXPECT_EQ(KindOf(With(From(1), {.first_segment = 3})), Kind::kFollowed);
  EXPECT_EQ(KindOf(With(From(1), {.first_segment = 5})), Kind::kGoesOn);
  EXPECT_EQ(KindOf(From(1)), Kind::kGoesOn) << "an earlier release tells nothing";
  EXPECT_TRUE(fleet_.IsFollowed(1, 4));
  EXPECT_FALSE(fleet_.IsFollowed(1, 5));
  EXPECT_FALSE(fleet_.IsFollowed(1, 0));
  EXPECT_FALSE(fleet_.IsFollowed(3, 4)) << "there is no such shard";
}

TEST_F(ShardFleetTest, ServerWhoseJournalLacksRecordsHasLostThem) {
  fleet_.GoOn(With(From(1), {.first_segment = 4, .process_id = 5}), now_);
  fleet_.SetJournal(1, {.end = 60});
  fleet_.SetJournal(1, {.end = 55});
  const auto restarted = [](uint64_t end) {
    return With(From(1), {.first_segment = 6, .end = end, .process_id = 6, .highest_round = 17});
  };
  EXPECT_EQ(fleet_.JudgeAttach(restarted(59), facts_),
            (AttachVerdict{.kind = Kind::kLoses, .loss = {Loss::kLacksRecords, 59, 17, 60}}));
  EXPECT_EQ(KindOf(restarted(60)), Kind::kGoesOn);
  fleet_.NoteJournalEnd(1, 61);
  EXPECT_EQ(KindOf(restarted(60)), Kind::kLoses);
  EXPECT_EQ(KindOf(With(From(1), {.first_segment = 4, .end = 40, .process_id = 5})), Kind::kGoesOn)
      << "what the same process says may be older";
}

TEST_F(ShardFleetTest, ServerThatTellsNoProcessHasLostRecordsOnlyIfItsConnectionEnded) {
  fleet_.GoOn(With(From(1), {.first_segment = 4}), now_);
  fleet_.SetJournal(1, {.end = 60});
  EXPECT_EQ(KindOf(With(From(1), {.first_segment = 4, .end = 40})), Kind::kGoesOn);
  fleet_.Disconnect(1, now_);
  ExpectLoss(With(From(1), {.first_segment = 4, .end = 40}), Loss::kLacksRecords);
}

TEST_F(ShardFleetTest, JournalThatHasGoneBackIsFollowedUnlessTheProcessBeforeIsAway) {
  fleet_.GoOn(With(From(1), {.first_segment = 4, .process_id = 5}), now_);
  fleet_.SetJournal(1, {.end = 60});
  const Attachment gone_back = With(From(1), {.first_segment = 2, .end = 40, .process_id = 6});
  EXPECT_EQ(KindOf(gone_back), Kind::kFollowed);
  fleet_.Disconnect(1, now_);
  ExpectLoss(gone_back, Loss::kLacksRecords);
}

TEST_F(ShardFleetTest, AnotherProcessLosesWhatTheOneBeforeHad) {
  fleet_.Disconnect(1, now_);
  ExpectLoss(Other(1), Loss::kLostMemory);
  facts_.is_ready = false;
  ExpectLoss(Other(1), Loss::kStartedAnew);
  facts_.is_ready = true;
  fleet_.SetJournal(1, {.end = 60});
  ExpectLoss(Other(1), Loss::kLeftJournal);
}

TEST_F(ShardFleetTest, LossBeforeComparisonIsUntold) {
  fleet_.Disconnect(1, now_);
  facts_ = {.has_memory = true, .is_comparing = true, .is_resumed = true};
  const AttachVerdict verdict = fleet_.JudgeAttach(Other(1), facts_);
  EXPECT_EQ(verdict, (AttachVerdict{.kind = Kind::kLosesUntold, .loss = {Loss::kLostMemory}}));
  fleet_.LoseUntold(1, verdict.loss, now_);
  EXPECT_THAT(fleet_.untold_losses(), ElementsAre(Pair(1, verdict.loss)));
  EXPECT_THAT(fleet_.Lacking(ShardFleet::State::kAttached), ElementsAre(1));
  EXPECT_EQ(KindOf(WithMemoryOf(From(2), 0)), Kind::kLosesUntold)
      << "its server may have gone back with its disk";
  facts_.is_resumed = false;
  fleet_.Disconnect(2, now_);
  ExpectLoss(Other(2), Loss::kStartedAnew);
}

TEST_F(ShardFleetTest, SilentServerAboveShardZeroIsAwayUntilItIsHeard) {
  now_ += kLease;
  fleet_.Hear(2, 72, now_);
  EXPECT_THAT(fleet_.MarkSilent(now_), IsEmpty());
  now_ += absl::Milliseconds(1);
  EXPECT_THAT(fleet_.MarkSilent(now_), ElementsAre(1));
  EXPECT_THAT(fleet_.MarkSilent(now_), IsEmpty()) << "that is no news";
  EXPECT_THAT(fleet_.Away(), ElementsAre(1));
  EXPECT_FALSE(fleet_.Hear(1, 99, now_)) << "another process is heard";
  EXPECT_TRUE(fleet_.Hear(1, 71, now_));
  EXPECT_EQ(fleet_.servers()[1].runs_since, now_);
  EXPECT_FALSE(fleet_.Hear(1, 71, now_)) << "it is back already";
  EXPECT_EQ(fleet_.back_at(), now_);
}

TEST_F(ShardFleetTest, PatienceIsFiveSecondsIfLeaseIsShorter) {
  ShardFleet fleet(1, absl::Seconds(1), now_);
  fleet.Attach({.shard = 0, .num_shards = 1, .instance_id = 70}, now_);
  fleet.Disconnect(0, now_);
  EXPECT_THAT(fleet.StillAway(now_ + absl::Milliseconds(4999)), IsEmpty());
  EXPECT_THAT(fleet.StillAway(now_ + absl::Seconds(5)), ElementsAre(0));
}

TEST_F(ShardFleetTest, CutConnectionIsNotBackByASignOfLife) {
  EXPECT_TRUE(fleet_.Disconnect(1, now_));
  EXPECT_FALSE(fleet_.Disconnect(1, now_)) << "it is away already";
  EXPECT_FALSE(fleet_.Hear(1, 71, now_));
  EXPECT_THAT(fleet_.Away(), ElementsAre(1));
}

TEST_F(ShardFleetTest, PeopleAreToldOnceOfServerThatIsAway) {
  fleet_.Disconnect(1, now_);
  now_ += kLease;
  EXPECT_THAT(fleet_.StillAway(now_), ElementsAre(1));
  EXPECT_FALSE(fleet_.any_told());
  EXPECT_TRUE(fleet_.MarkTold(1));
  EXPECT_FALSE(fleet_.MarkTold(1));
  EXPECT_TRUE(fleet_.any_told());
  fleet_.GoOn(From(1), now_);
  EXPECT_FALSE(fleet_.any_told());
}

TEST_F(ShardFleetTest, ToldToExitAreServersAboveShardZeroThatMayHear) {
  EXPECT_THAT(fleet_.Reachable(now_), ElementsAre(1, 2));
  fleet_.Disconnect(1, now_);
  EXPECT_THAT(fleet_.Reachable(now_), ElementsAre(1, 2));
  fleet_.MarkTold(1);
  EXPECT_THAT(fleet_.Reachable(now_), ElementsAre(2));
  fleet_.Lose(2, now_);
  EXPECT_THAT(fleet_.Reachable(now_ + kLease), ElementsAre(2));
  EXPECT_THAT(fleet_.Reachable(now_ + kLease + absl::Milliseconds(1)), IsEmpty());
  EXPECT_THAT(ShardFleet(3, kLease, now_).Reachable(now_), IsEmpty()) << "none was ever there";
}

TEST_F(ShardFleetTest, ServerAboveShardZeroIsReplaceableOnceAllHaveLoaded) {
  ShardFleet fleet(2, kLease, now_);
  fleet.Attach({.shard = 0, .num_shards = 2, .instance_id = 70}, now_);
  fleet.Attach({.shard = 1, .num_shards = 2, .instance_id = 71}, now_);
  fleet.MarkLoading(now_);
  fleet.MarkServing(0, now_);
  EXPECT_FALSE(fleet.FinishLoading());
  EXPECT_THAT(fleet.Lacking(ShardFleet::State::kServing), ElementsAre(1));
  fleet.MarkServing(1, now_);
  fleet.Disconnect(1, now_);
  EXPECT_FALSE(fleet.FinishLoading()) << "a server is away";
  EXPECT_TRUE(fleet.all_loaded());
  EXPECT_FALSE(fleet.IsReplaceable(1));
  fleet.Hear(1, 71, now_);
  fleet.GoOn({.shard = 1, .num_shards = 2, .instance_id = 71}, now_);
  EXPECT_TRUE(fleet.FinishLoading());
  EXPECT_TRUE(fleet.IsReplaceable(1));
  EXPECT_FALSE(fleet.IsReplaceable(0));
}

TEST_F(ShardFleetTest, JournalTroubleIsOfServersThatAreThere) {
  fleet_.SetJournal(1, {.trouble = "disk full"});
  fleet_.SetJournal(2, {.trouble = "disk full"});
  EXPECT_THAT(fleet_.WithJournalTrouble(), ElementsAre(1, 2));
  fleet_.Disconnect(1, now_);
  fleet_.Lose(2, now_);
  EXPECT_THAT(fleet_.WithJournalTrouble(), IsEmpty());
}

TEST_F(ShardFleetTest, AllKeepJournalsIfEachTellsOfItsSegment) {
  for (const int shard : {0, 1}) fleet_.GoOn(With(From(shard), {.first_segment = 1}), now_);
  EXPECT_FALSE(fleet_.all_keep_journals());
  fleet_.GoOn(With(From(2), {.first_segment = 1}), now_);
  EXPECT_TRUE(fleet_.all_keep_journals());
}

TEST_F(ShardFleetTest, IncarnationIsAboveAllThatIsKnown) {
  EXPECT_EQ(fleet_.server_incarnation(), kLife);
  fleet_.BeginIncarnation(5);
  EXPECT_EQ(fleet_.server_incarnation(), kLife + 1);
  JournalFacts facts;
  facts.newest.emplace();
  facts.newest->server_incarnation = 4000;
  fleet_.Compare(facts, Round(3));
  fleet_.ForgetIncarnation();
  EXPECT_EQ(fleet_.server_incarnation(), 0);
  fleet_.BeginIncarnation(5);
  EXPECT_EQ(fleet_.server_incarnation(), 4001);
  fleet_.GoOn(WithMemoryOf(From(1), 5000), now_);
  fleet_.Compare(facts, Round(3));
  fleet_.BeginIncarnation(5);
  EXPECT_EQ(fleet_.server_incarnation(), 5001);
}

TEST_F(ShardFleetTest, ComparesJournalWithServersThatHaveAttached) {
  JournalFacts facts;
  facts.end = {11, 50};
  fleet_.GoOn(With(From(1), {.follows = {11, 51}, .highest_round = 17}), now_);
  const auto loss = fleet_.Compare(facts, Round(3));
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(*loss, (JournalLoss{.round = Round(17),
                                .next_round = Round(3),
                                .later = {{LaterKnowledge::Kind::kShardRecord, 1, 51, 17}}}));
  fleet_.GoOn(With(From(1), {.follows = {11, 50}, .highest_round = 2}), now_);
  EXPECT_FALSE(fleet_.Compare(facts, Round(3)).has_value());
  fleet_.GoOn(With(From(1), {.follows = {11, 50}, .highest_round = 3}), now_);
  EXPECT_TRUE(fleet_.Compare(facts, Round(3)).has_value());
  EXPECT_FALSE(fleet_.Compare(facts, std::nullopt).has_value());
}

TEST_F(ShardFleetTest, EventCountsIfItIsOfThisLifeAndOfAShard) {
  EXPECT_TRUE(fleet_.Counts(2, kLife));
  EXPECT_FALSE(fleet_.Counts(2, kLife - 1));
  EXPECT_FALSE(fleet_.Counts(2, kLife + 1));
  EXPECT_FALSE(fleet_.Counts(3, kLife));
}

TEST_F(ShardFleetTest, NothingOfRoundsIsLeftOnceTheyAreForgotten) {
  fleet_.OnPublished({"ckpt/round-2.tmp", "ckpt/round-2", Round(2)});
  for (const int shard : {0, 1}) {
    EXPECT_EQ(fleet_.AddSquareSums(shard, Round(2), {1.0}), std::nullopt);
  }
  EXPECT_EQ(fleet_.AddSquareSums(2, Round(2), {2.0}), 4.0);
  EXPECT_THAT(fleet_.norm_totals(), ElementsAre(Pair(Round(2), 4.0)));
  EXPECT_EQ(fleet_.published()->round, Round(2));
  fleet_.ForgetRounds();
  EXPECT_THAT(fleet_.norm_totals(), IsEmpty());
  EXPECT_FALSE(fleet_.published().has_value());
}

TEST_F(ShardFleetTest, ResumedServersServeAndAreAwayUntilTheyConnect) {
  fleet_.GoOn(With(From(1), {.first_segment = 4, .process_id = 5}), now_);
  fleet_.SetJournal(1, {.end = 60});
  fleet_.AddSquareSums(0, Round(2), {1.0});
  ShardFleet resumed(3, kLease, now_);
  now_ += absl::Seconds(1);
  resumed.Resume(fleet_.memory(), now_);
  EXPECT_EQ(resumed.memory(), fleet_.memory());
  EXPECT_TRUE(resumed.all_loaded());
  EXPECT_THAT(resumed.Away(), ElementsAre(0, 1, 2));
  EXPECT_TRUE(resumed.has_loaded());
  EXPECT_EQ(resumed.back_at(), now_);
  EXPECT_EQ(resumed.server_incarnation(), kLife);
  EXPECT_EQ(resumed.AddSquareSums(1, Round(2), {1.0}), std::nullopt);
  EXPECT_EQ(resumed.AddSquareSums(2, Round(2), {1.0}), 3.0);
}

}  // namespace
}  // namespace lodestar::shards
