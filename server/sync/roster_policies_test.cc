// The cases of policies with rosters, one by one; the laws are in the conformance test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "server/sync/bulk_synchronous.h"
#include "server/sync/local_sgd.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

std::vector<WorkerId> Ids(const std::vector<uint32_t>& numbers) {
  std::vector<WorkerId> ids;
  for (uint32_t number : numbers) ids.push_back(WorkerId(number));
  return ids;
}

// A bucket at version 5 whose round has the roster {1, 2, 3}.
class RosterPoliciesTest : public ::testing::Test {
 protected:
  RosterPoliciesTest() {
    plan_.round = Round(5);
    for (uint32_t id : {1, 2, 3}) plan_.roster.push_back({WorkerId(id), Incarnation(id), 1});
  }

  BucketFacts Facts() {
    BucketFacts facts;
    facts.version = Version(5);
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
  BulkSynchronous everyone_{BulkSynchronous::Config{}};
  BulkSynchronous quorum_{BulkSynchronous::Config{.quorum = 2}};
};

TEST_F(RosterPoliciesTest, SumsInOrderOfWorkerId) {
  const Decision held = everyone_.OnPush(PushOf(3), Facts());
  EXPECT_EQ(held.action, Action::kHold);
  EXPECT_THAT(held.reason, HasSubstr("comes after workers 1, 2"));
  EXPECT_EQ(everyone_.OnPush(PushOf(1), Facts()).action, Action::kAccumulate);
  contributed_ = Ids({1, 2});
  EXPECT_EQ(everyone_.OnPush(PushOf(3), Facts()).action, Action::kApply);
}

TEST_F(RosterPoliciesTest, ADroppedMemberIsNeitherAwaitedNorInTheWay) {
  live_ = Ids({2, 3});
  EXPECT_EQ(everyone_.OnPush(PushOf(2), Facts()).action, Action::kAccumulate);
  contributed_ = Ids({2});
  EXPECT_THAT(everyone_.OnRosterChange(Facts()).reason, HasSubstr("waits for worker 3"));
  live_ = Ids({2});
  EXPECT_EQ(everyone_.OnRosterChange(Facts()).action, Action::kApply);
}

TEST_F(RosterPoliciesTest, ADroppedMembersContributionStays) {
  contributed_ = Ids({1});
  live_ = {};
  EXPECT_EQ(everyone_.OnRosterChange(Facts()).action, Action::kApply);
  contributed_ = {};
  EXPECT_EQ(everyone_.OnRosterChange(Facts()).action, Action::kDrop);
}

TEST_F(RosterPoliciesTest, QuorumAppliesAtItsCountInAnyOrder) {
  EXPECT_FALSE(quorum_.fixed_order());
  EXPECT_EQ(quorum_.OnPush(PushOf(3), Facts()).action, Action::kAccumulate);
  contributed_ = Ids({3});
  EXPECT_EQ(quorum_.OnPush(PushOf(1), Facts()).action, Action::kApply);
  live_ = Ids({2});
  EXPECT_EQ(quorum_.OnRosterChange(Facts()).action, Action::kHold) << "2 can still come";
  live_ = {};
  EXPECT_EQ(quorum_.OnRosterChange(Facts()).action, Action::kApply);
}

TEST_F(RosterPoliciesTest, LateIsDroppedAheadIsRefusedUnopenedIsHeld) {
  const Decision late = quorum_.OnPush(PushOf(1, 4), Facts());
  EXPECT_EQ(late.action, Action::kDrop);
  EXPECT_FALSE(late.duplicate);
  const Decision ahead = everyone_.OnPush(PushOf(1, 6), Facts());
  EXPECT_EQ(ahead.code, absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(ahead.reason, HasSubstr("expected is round 5"));
  BucketFacts unopened = Facts();
  unopened.plan = nullptr;
  EXPECT_THAT(everyone_.OnPush(PushOf(1), unopened).reason, HasSubstr("open round 5"));
}

TEST_F(RosterPoliciesTest, RepeatIsADuplicateEvenAfterItsWorkerLeft) {
  PushFacts push = PushOf(1);
  push.last_counted = CountedContribution{Incarnation(1), Round(5)};
  push.standing = Standing::kGone;
  const Decision repeat = everyone_.OnPush(push, Facts());
  EXPECT_EQ(repeat.action, Action::kDrop);
  EXPECT_TRUE(repeat.duplicate);
}

TEST_F(RosterPoliciesTest, WorkersOutsideTheRosterAreRefused) {
  EXPECT_EQ(everyone_.OnPush(PushOf(9), Facts()).code, absl::StatusCode::kFailedPrecondition);
}

TEST_F(RosterPoliciesTest, PullWaitsForTheMissingOfTheRound) {
  contributed_ = Ids({1});
  PullFacts pull{WorkerId(1), Incarnation(1), Version(6), Standing::kMember};
  EXPECT_THAT(everyone_.OnPull(pull, Facts()).reason, HasSubstr("waits for workers 2, 3"));
  pull.min_version = Version(5);
  EXPECT_EQ(everyone_.OnPull(pull, Facts()).action, Action::kApply);
}

TEST_F(RosterPoliciesTest, RoundOfTheClusterEndsWithoutTheDead) {
  const std::vector<MemberProgress> members = {{WorkerId(1), "a", 0, true, false},
                                               {WorkerId(2), "b", 0, false, true}};
  const std::vector<MemberProgress> missing = {members[1]};
  ClusterFacts cluster;
  cluster.members = members;
  cluster.open_round = OpenRoundFacts{Round(5), 1, missing};
  EXPECT_THAT(everyone_.OnRoundEnd(cluster).reason, HasSubstr("round 5 waits for b"));
  EXPECT_EQ(everyone_.OnOpening(cluster).action, Action::kHold);
  cluster.open_round->missing = {};
  EXPECT_EQ(everyone_.OnRoundEnd(cluster).action, Action::kApply);
  EXPECT_EQ(everyone_.OnOpening(cluster).action, Action::kApply);
}

TEST_F(RosterPoliciesTest, QuorumOpensWithAllAtFirstAndWithoutStragglersLater) {
  std::vector<MemberProgress> members = {{WorkerId(1), "a", 0, true, false},
                                         {WorkerId(2), "b", 0, true, false},
                                         {WorkerId(3), "c", 0, false, false}};
  ClusterFacts cluster;
  cluster.required.count = 3;
  cluster.members = members;
  EXPECT_THAT(quorum_.OnOpening(cluster).reason, HasSubstr("waits for c"));
  members[2].working = true;
  EXPECT_EQ(quorum_.OnOpening(cluster).action, Action::kApply);
}

TEST_F(RosterPoliciesTest, LocalSgdTakesPseudoGradientsFromEveryone) {
  const LocalSgd policy;
  EXPECT_TRUE(policy.fixed_order());
  EXPECT_FALSE(policy.clips_on_server());
  PushFacts push = PushOf(1);
  EXPECT_EQ(policy.OnPush(push, Facts()).code, absl::StatusCode::kInvalidArgument);
  push.is_pseudo_gradient = true;
  EXPECT_EQ(policy.OnPush(push, Facts()).action, Action::kAccumulate);
}

}  // namespace
}  // namespace lodestar
