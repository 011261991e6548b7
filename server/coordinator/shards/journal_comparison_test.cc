// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/shards/journal_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace lodestar::shards {
namespace {

using ::testing::ElementsAre;
using Kind = LaterKnowledge::Kind;

constexpr uint64_t kOurs = 11;
constexpr uint64_t kOther = 12;

JournalFacts Facts(CoordinatorRecord end) {
  JournalFacts facts;
  facts.folder = "/journal/coordinator";
  facts.end = end;
  facts.new_journal_id = 99;
  return facts;
}

KnownCheckpoint Checkpoint(Round round, uint64_t journal_id, uint64_t record,
                           bool is_complete = false) {
  KnownCheckpoint checkpoint;
  checkpoint.path = "/run/checkpoint";
  checkpoint.round = round;
  checkpoint.server_incarnation = 5;
  checkpoint.journal.journal_id = journal_id;
  checkpoint.journal.record = record;
  checkpoint.journal.is_complete = is_complete;
  return checkpoint;
}

ShardKnowledge Shard(CoordinatorRecord follows, int64_t highest_round, uint64_t memory_of = 5) {
  return {1,
          memory_of,
          {.first_segment = 1, .end = 8, .follows = follows, .highest_round = highest_round}};
}

const ResumedMemory kMemory = {.server_incarnation = 5, .next_round = Round(301)};

TEST(JournalComparisonTest, FindsNothingWhereAllFollowWhatIsThere) {
  JournalFacts facts = Facts({kOurs, 100});
  facts.newest = Checkpoint(Round(200), kOurs, 100);
  EXPECT_FALSE(FindJournalLoss(facts, kMemory, {{Shard({kOurs, 100}, 300)}}).has_value());
  // Servers of an earlier release, and servers without a journal, do not report a record of the
  // coordinator's journal.
  EXPECT_FALSE(FindJournalLoss(facts, kMemory, {{Shard({}, 2001)}}).has_value());
  EXPECT_FALSE(FindJournalLoss(Facts({}), std::nullopt, {{Shard({}, -1, 0)}}).has_value());
}

TEST(JournalComparisonTest, ShardThatFollowsLaterRecordShowsLossAndRound) {
  const auto loss = FindJournalLoss(Facts({kOurs, 100}), kMemory, {{Shard({kOurs, 101}, 2001)}});
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->round, Round(2001));
}

TEST(JournalComparisonTest, ShardThatCountedGrantOfLaterRoundShowsLoss) {
  const JournalFacts facts = Facts({kOurs, 100});
  EXPECT_FALSE(FindJournalLoss(facts, kMemory, {{Shard({kOurs, 50}, 300)}}).has_value());
  EXPECT_TRUE(FindJournalLoss(facts, kMemory, {{Shard({kOurs, 50}, 301)}}).has_value());
  // Rounds of another incarnation of the servers are not compared.
  EXPECT_FALSE(FindJournalLoss(facts, kMemory, {{Shard({kOurs, 50}, 301, 4)}}).has_value());
}

TEST(JournalComparisonTest, CheckpointThatFollowsLaterRecordShowsLoss) {
  JournalFacts facts = Facts({kOurs, 100});
  facts.newest = Checkpoint(Round(2000), kOurs, 101);
  const auto loss = FindJournalLoss(facts, kMemory, {});
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->round, Round(2000));
}

TEST(JournalComparisonTest, MissingJournalIsLossUnlessCheckpointIsComplete) {
  JournalFacts facts = Facts({});
  facts.newest = Checkpoint(Round(2000), kOther, 101);
  EXPECT_TRUE(FindJournalLoss(facts, std::nullopt, {}).has_value());
  facts.folder.clear();
  EXPECT_TRUE(FindJournalLoss(facts, std::nullopt, {}).has_value());
  facts.newest->journal.is_complete = true;
  EXPECT_FALSE(FindJournalLoss(facts, std::nullopt, {}).has_value());
  facts.newest = Checkpoint(Round(2000), /*journal_id=*/0, 0);
  EXPECT_FALSE(FindJournalLoss(facts, std::nullopt, {}).has_value());
}

TEST(JournalComparisonTest, DamagedJournalIsLossUnlessCheckpointIsComplete) {
  JournalFacts facts = Facts({});
  facts.damage = "00000001.journal at byte 7 is damaged";
  facts.newest = Checkpoint(Round(2000), kOther, 101);
  auto loss = FindJournalLoss(facts, std::nullopt, {{Shard({kOther, 120}, 2040)}});
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->round, Round(2040));
  EXPECT_THAT(loss->later,
              ElementsAre(LaterKnowledge{Kind::kShardOtherJournal, /*shard=*/1, 120, 2040},
                          LaterKnowledge{Kind::kCheckpointOtherJournal, /*shard=*/0, 101, 2000}));
  EXPECT_FALSE(loss->next_round.has_value());
  facts.newest->journal.is_complete = true;
  EXPECT_FALSE(FindJournalLoss(facts, std::nullopt, {}).has_value());
  // Neither a checkpoint of an earlier release nor a missing checkpoint says what the journal had.
  for (const auto& newest : {std::optional(Checkpoint(Round(2000), /*journal_id=*/0, 0)),
                             std::optional<KnownCheckpoint>()}) {
    facts.newest = newest;
    loss = FindJournalLoss(facts, std::nullopt, {});
    ASSERT_TRUE(loss.has_value());
    EXPECT_EQ(loss->round, newest.has_value() ? Round(2000) : Round(0));
    EXPECT_THAT(loss->later, ElementsAre(LaterKnowledge{Kind::kMayBeInDamaged}));
  }
  facts.is_excused = true;
  EXPECT_FALSE(FindJournalLoss(facts, std::nullopt, {}).has_value());
}

TEST(JournalComparisonTest, MissingJournalIsLossWhereShardKnowsRoundsBeyondCheckpoint) {
  JournalFacts facts = Facts({});
  EXPECT_TRUE(FindJournalLoss(facts, std::nullopt, {{Shard({kOther, 7}, 0)}}).has_value());
  facts.newest = Checkpoint(Round(70), /*journal_id=*/0, 0);
  EXPECT_FALSE(FindJournalLoss(facts, std::nullopt, {{Shard({kOther, 7}, 69)}}).has_value());
  EXPECT_TRUE(FindJournalLoss(facts, std::nullopt, {{Shard({kOther, 7}, 70)}}).has_value());
}

TEST(JournalComparisonTest, JournalOfLaterLifeThanCheckpointIsNoLoss) {
  JournalFacts facts = Facts({kOurs, 3});
  facts.newest = Checkpoint(Round(2000), kOther, 101);
  EXPECT_TRUE(FindJournalLoss(facts, kMemory, {}).has_value());
  EXPECT_FALSE(FindJournalLoss(facts, ResumedMemory{6, Round(2010)}, {}).has_value());
}

TEST(JournalComparisonTest, ShardOfLaterLifeWithAnotherJournalShowsLoss) {
  const JournalFacts facts = Facts({kOurs, 3});
  EXPECT_FALSE(FindJournalLoss(facts, kMemory, {{Shard({kOther, 7}, 70, 5)}}).has_value());
  EXPECT_TRUE(FindJournalLoss(facts, kMemory, {{Shard({kOther, 7}, 70, 6)}}).has_value());
}

TEST(JournalComparisonTest, ExcusesOperatorsChoiceAndEarlierReleases) {
  JournalFacts facts = Facts({kOurs, 100});
  facts.is_excused = true;
  EXPECT_FALSE(FindJournalLoss(facts, kMemory, {{Shard({kOurs, 101}, 2001)}}).has_value());
  facts = Facts({0, 100});
  EXPECT_FALSE(FindJournalLoss(facts, kMemory, {{Shard({kOurs, 101}, 2001)}}).has_value());
}

TEST(JournalComparisonTest, NamesHighestRoundThatAnyoneKnows) {
  JournalFacts facts = Facts({kOurs, 100});
  facts.newest = Checkpoint(Round(2000), kOurs, 101);
  const auto loss =
      FindJournalLoss(facts, kMemory, {{Shard({kOurs, 90}, 290), Shard({kOurs, 105}, 2040)}});
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->round, Round(2040));
  EXPECT_EQ(loss->next_round, kMemory.next_round);
  EXPECT_THAT(loss->later,
              ElementsAre(LaterKnowledge{Kind::kShardRecord, /*shard=*/1, 105, 2040},
                          LaterKnowledge{Kind::kCheckpointRecord, /*shard=*/0, 101, 2000}));
}

TEST(JournalComparisonTest, SaysOfShardWithContributionsToLaterRoundsToWhichOnes) {
  const auto loss = FindJournalLoss(Facts({kOurs, 100}), kMemory, {{Shard({kOurs, 50}, 305)}});
  ASSERT_TRUE(loss.has_value());
  EXPECT_THAT(loss->later, ElementsAre(LaterKnowledge{Kind::kShardRound, /*shard=*/1, 50, 305}));
}

TEST(JournalComparisonTest, LossIsAcceptedByItsRoundOrByPromotionOfReplica) {
  const JournalLoss loss = {.round = Round(17)};
  JournalFacts facts = Facts({kOurs, 100});
  EXPECT_EQ(AcceptanceOf(facts, loss), LossAcceptance::kNone);
  facts.accepted_loss = Round(16);
  EXPECT_EQ(AcceptanceOf(facts, loss), LossAcceptance::kOfAnotherRound);
  facts.accepted_loss = Round(17);
  EXPECT_EQ(AcceptanceOf(facts, loss), LossAcceptance::kAccepted);
  facts.accepted_loss.reset();
  facts.is_promoted = true;
  EXPECT_EQ(AcceptanceOf(facts, loss), LossAcceptance::kAccepted);
}

}  // namespace
}  // namespace lodestar::shards
