// SPDX-License-Identifier: Apache-2.0

// Tests single cases of rounds with rosters. The rules for all policies are tested in
// policy_conformance_test.cc.
#include "server/sync/roster_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace lodestar::sync {
namespace {

using ::testing::HasSubstr;

std::vector<WorkerId> Ids(const std::vector<uint32_t>& numbers) {
  std::vector<WorkerId> ids;
  for (uint32_t number : numbers) ids.push_back(WorkerId(number));
  return ids;
}

// Fixture with a bucket that collects round 5, with the roster {1, 2, 3}.
class RosterRoundsTest : public ::testing::Test {
 protected:
  RosterRoundsTest() {
    plan_.round = Round(5);
    for (uint32_t id : {1, 2, 3}) plan_.roster.push_back({WorkerId(id), Incarnation(id), 1});
  }

  BucketFacts Facts() {
    BucketFacts facts;
    facts.version = Version(5);
    facts.round = Round(5);
    facts.newest_opened = Round(5);
    facts.plan = &plan_;
    facts.live = live_;
    facts.contributed = contributed_;
    return facts;
  }

  static PushFacts PushOf(uint32_t worker, int64_t round = 5) {
    PushFacts push;
    push.worker = WorkerId(worker);
    push.incarnation = Incarnation(worker);
    push.round = Round(round);
    push.standing = Standing::kMember;
    return push;
  }

  RoundPlan plan_;
  std::vector<WorkerId> live_ = Ids({1, 2, 3});
  std::vector<WorkerId> contributed_;
  const RosterBuckets everyone_{/*quorum=*/0};
  const RosterBuckets quorum_{/*quorum=*/2};
  const RosterCluster everyones_cluster_{/*quorum=*/0};
  const RosterCluster quorums_cluster_{/*quorum=*/2};
};

TEST_F(RosterRoundsTest, ABucketThatARoundDoesNotExchangeGoesOnWithoutAnUpdate) {
  BucketFacts facts = Facts();
  facts.is_due = false;
  const Decision skipped = everyone_.OnRosterChange(facts);
  EXPECT_EQ(skipped.action, Action::kDrop);
  EXPECT_EQ(skipped.reason, "");
  // The bucket waits until the round is opened, or over.
  facts.plan = nullptr;
  EXPECT_EQ(everyone_.OnRosterChange(facts).action, Action::kHold);
  facts.over_before = Round(6);
  EXPECT_EQ(everyone_.OnRosterChange(facts).action, Action::kDrop);
}

TEST_F(RosterRoundsTest, APartThatItsRoundDoesNotExchangeIsRefusedByName) {
  for (const int64_t round : {4, 5, 6}) {
    PushFacts push = PushOf(1, round);
    push.is_due = false;
    const Decision refused = everyone_.OnPush(push, Facts());
    EXPECT_EQ(refused.code, absl::StatusCode::kFailedPrecondition) << "round " << round;
    EXPECT_THAT(refused.reason, HasSubstr("--fragments"));
  }
}

TEST_F(RosterRoundsTest, SumsInOrderOfWorkerId) {
  const Decision held = everyone_.OnPush(PushOf(3), Facts());
  EXPECT_EQ(held.action, Action::kHold);
  EXPECT_TRUE(held.is_due);
  EXPECT_THAT(held.reason, HasSubstr("comes after workers 1, 2"));
  EXPECT_EQ(everyone_.OnPush(PushOf(1), Facts()).action, Action::kAccumulate);
  contributed_ = Ids({1, 2});
  EXPECT_EQ(everyone_.OnPush(PushOf(3), Facts()).action, Action::kApply);
}

TEST_F(RosterRoundsTest, OneOnFewerSamplesThanGrantedIsAddedAtOnce) {
  for (RosterMember& member : plan_.roster) member.num_samples = 8;
  PushFacts push = PushOf(3);
  push.num_samples = 7;
  EXPECT_EQ(everyone_.OnPush(push, Facts()).action, Action::kAccumulate);
  for (const int64_t whole : {int64_t{0}, int64_t{8}, int64_t{9}, int64_t{-1}}) {
    push.num_samples = whole;
    EXPECT_EQ(everyone_.OnPush(push, Facts()).action, Action::kHold) << whole;
  }
  // Member 3 has contributed. The contribution of member 2 must still wait for member 1.
  contributed_ = Ids({3});
  EXPECT_EQ(everyone_.OnPush(PushOf(2), Facts()).action, Action::kHold);
  EXPECT_EQ(everyone_.OnPush(PushOf(1), Facts()).action, Action::kAccumulate);
}

TEST_F(RosterRoundsTest, ADroppedMemberIsNeitherAwaitedNorInTheWay) {
  live_ = Ids({2, 3});
  EXPECT_EQ(everyone_.OnPush(PushOf(2), Facts()).action, Action::kAccumulate);
  contributed_ = Ids({2});
  EXPECT_THAT(everyone_.OnRosterChange(Facts()).reason, HasSubstr("waits for worker 3"));
  live_ = Ids({2});
  EXPECT_EQ(everyone_.OnRosterChange(Facts()).action, Action::kApply);
}

TEST_F(RosterRoundsTest, ADroppedMembersContributionStays) {
  contributed_ = Ids({1});
  live_ = {};
  EXPECT_EQ(everyone_.OnRosterChange(Facts()).action, Action::kApply);
  contributed_ = {};
  EXPECT_EQ(everyone_.OnRosterChange(Facts()).action, Action::kDrop);
}

TEST_F(RosterRoundsTest, ARoundThatLaterOnesHaveLeftBehindIsOverWithWhatIsHere) {
  BucketFacts facts = Facts();
  facts.over_before = Round(7);
  EXPECT_EQ(everyone_.OnRosterChange(facts).action, Action::kDrop);
  facts.plan = nullptr;
  facts.live = {};
  EXPECT_EQ(everyone_.OnRosterChange(facts).action, Action::kDrop) << "opened while it was away";
  facts = Facts();
  facts.over_before = Round(6);
  contributed_ = Ids({1});
  facts.contributed = contributed_;
  EXPECT_EQ(everyone_.OnRosterChange(facts).action, Action::kApply);
}

TEST_F(RosterRoundsTest, QuorumAppliesAtItsCountInAnyOrder) {
  EXPECT_FALSE(quorum_.fixed_order());
  EXPECT_EQ(quorum_.OnPush(PushOf(3), Facts()).action, Action::kAccumulate);
  contributed_ = Ids({3});
  EXPECT_EQ(quorum_.OnPush(PushOf(1), Facts()).action, Action::kApply);
  live_ = Ids({2});
  EXPECT_EQ(quorum_.OnRosterChange(Facts()).action, Action::kHold) << "2 can still come";
  live_ = {};
  EXPECT_EQ(quorum_.OnRosterChange(Facts()).action, Action::kApply);
}

TEST_F(RosterRoundsTest, LateIsDroppedAheadIsRefusedUnopenedIsHeld) {
  const Decision late = quorum_.OnPush(PushOf(1, 4), Facts());
  EXPECT_EQ(late.action, Action::kDrop);
  EXPECT_FALSE(late.duplicate);
  const Decision ahead = everyone_.OnPush(PushOf(1, 7), Facts());
  EXPECT_EQ(ahead.code, absl::StatusCode::kAborted);
  EXPECT_THAT(ahead.reason, HasSubstr("round 5 is expected"));
  BucketFacts unopened = Facts();
  unopened.plan = nullptr;
  EXPECT_THAT(everyone_.OnPush(PushOf(1), unopened).reason, HasSubstr("open round 5"));
}

TEST_F(RosterRoundsTest, WorkersOutsideTheRosterAreRefused) {
  EXPECT_EQ(everyone_.OnPush(PushOf(9), Facts()).code, absl::StatusCode::kFailedPrecondition);
}

TEST_F(RosterRoundsTest, TheRoundAfterThoseOpenedMayComeEarlyAndWaits) {
  const Decision next = everyone_.OnPush(PushOf(1, 6), Facts());
  EXPECT_EQ(next.action, Action::kHold);
  EXPECT_THAT(next.reason, HasSubstr("waits for the end of round 5"));
  BucketFacts behind = Facts();
  behind.newest_opened = Round(9);
  EXPECT_EQ(everyone_.OnPush(PushOf(1, 10), behind).action, Action::kHold);
  EXPECT_EQ(everyone_.OnPush(PushOf(1, 11), behind).code, absl::StatusCode::kAborted);
}

// With three fragments, a worker may be up to three rounds ahead of the round that this bucket
// knows. Its pushes are held.
TEST_F(RosterRoundsTest, WithFragmentsAsManyRoundsMayComeEarlyAndWait) {
  const RosterBuckets of_three(/*quorum=*/0, /*fragments=*/3);
  EXPECT_EQ(of_three.OnPush(PushOf(1, 8), Facts()).action, Action::kHold);
  EXPECT_EQ(of_three.OnPush(PushOf(1, 9), Facts()).code, absl::StatusCode::kAborted);
}

TEST_F(RosterRoundsTest, NothingCountsWhileTheUpdateOfTheRoundBeforeIsUnderWay) {
  BucketFacts updating = Facts();
  updating.is_updating = true;
  for (uint32_t worker : {1, 3}) {
    const Decision held = everyone_.OnPush(PushOf(worker), updating);
    EXPECT_EQ(held.action, Action::kHold);
    EXPECT_FALSE(held.is_due);
    EXPECT_THAT(held.reason, HasSubstr("waits for the update of round 4"));
  }
  EXPECT_EQ(everyone_.OnPush(PushOf(1, 4), updating).action, Action::kDrop);
}

TEST_F(RosterRoundsTest, PullWaitsForTheMissingOfTheRound) {
  contributed_ = Ids({1});
  PullFacts pull{WorkerId(1), Incarnation(1), Round(6), Standing::kMember};
  EXPECT_THAT(everyone_.OnPull(pull, Facts()).reason, HasSubstr("waits for workers 2, 3"));
  pull.min_round = Round(5);
  EXPECT_EQ(everyone_.OnPull(pull, Facts()).action, Action::kApply);
}

TEST_F(RosterRoundsTest, RoundOfTheClusterEndsWithoutTheDead) {
  const std::vector<MemberProgress> members = {{WorkerId(1), "a", 0, true, false},
                                               {WorkerId(2), "b", 0, false, true}};
  const std::vector<MemberProgress> missing = {members[1]};
  ClusterFacts cluster;
  cluster.members = members;
  cluster.open_round = OpenRoundFacts{Round(5), 1, missing};
  EXPECT_THAT(everyones_cluster_.OnRoundEnd(*cluster.open_round).reason,
              HasSubstr("round 5 waits for b"));
  EXPECT_EQ(everyones_cluster_.OnOpening(cluster).action, Action::kHold);
  cluster.open_round->missing = {};
  EXPECT_EQ(everyones_cluster_.OnRoundEnd(*cluster.open_round).action, Action::kApply);
  EXPECT_EQ(everyones_cluster_.OnOpening(cluster).action, Action::kApply);
}

TEST_F(RosterRoundsTest, QuorumOpensWithAllAtFirstAndWithoutStragglersLater) {
  std::vector<MemberProgress> members = {{WorkerId(1), "a", 0, true, false},
                                         {WorkerId(2), "b", 0, true, false},
                                         {WorkerId(3), "c", 0, false, false}};
  ClusterFacts cluster;
  cluster.required.count = 3;
  cluster.members = members;
  EXPECT_THAT(quorums_cluster_.OnOpening(cluster).reason, HasSubstr("waits for c"));
  members[2].working = true;
  EXPECT_EQ(quorums_cluster_.OnOpening(cluster).action, Action::kApply);
}

}  // namespace
}  // namespace lodestar::sync
