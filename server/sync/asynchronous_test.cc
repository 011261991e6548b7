// SPDX-License-Identifier: Apache-2.0

#include "server/sync/asynchronous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lodestar::sync {
namespace {

using ::testing::HasSubstr;

PushFacts PushOn(int64_t base_version) {
  PushFacts push;
  push.worker = WorkerId(1);
  push.incarnation = Incarnation(1);
  push.base_version = Version(base_version);
  push.standing = Standing::kMember;
  return push;
}

TEST(AsynchronousTest, AppliesOnArrivalAndKnowsTheStaleness) {
  const AsynchronousBuckets policy;
  BucketFacts bucket;
  bucket.version = Version(7);
  const Decision decision = policy.OnPush(PushOn(4), bucket);
  EXPECT_EQ(decision.action, Action::kApplyAlone);
  EXPECT_THAT(decision.reason, HasSubstr("staleness 3"));
  EXPECT_EQ(policy.OnPush(PushOn(8), bucket).code, absl::StatusCode::kFailedPrecondition);
}

TEST(AsynchronousLocalTest, WhatIsTooOldIsLate) {
  const AsynchronousLocalBuckets policy({.max_staleness = 3});
  BucketFacts bucket;
  bucket.version = Version(7);
  EXPECT_EQ(policy.OnPush(PushOn(4), bucket).action, Action::kApplyAlone);
  const Decision late = policy.OnPush(PushOn(3), bucket);
  EXPECT_EQ(late.action, Action::kDrop);
  EXPECT_FALSE(late.duplicate);
  EXPECT_THAT(late.reason, HasSubstr("4 updates old, more than --max_staleness=3"));
  EXPECT_EQ(AsynchronousLocalBuckets({}).OnPush(PushOn(0), bucket).action, Action::kApplyAlone);
}

TEST(AsynchronousLocalTest, AStepHasAPartOfEachMemberOrOfTheQuorum) {
  EXPECT_EQ(AsynchronousLocalBuckets({}).PartsOfStep(3), 3);
  EXPECT_EQ(AsynchronousLocalBuckets({}).PartsOfStep(0), 1);
  EXPECT_EQ(AsynchronousLocalBuckets({.quorum = 2}).PartsOfStep(3), 2);
  EXPECT_EQ(AsynchronousLocalBuckets({.quorum = 2}).PartsOfStep(1), 1);
  EXPECT_EQ(AsynchronousBuckets().PartsOfStep(3), std::nullopt);
}

TEST(AsynchronousTest, APullIsAnsweredAtOnce) {
  const PullFacts pull{WorkerId(1), Incarnation(1), Round(9), Standing::kMember};
  EXPECT_EQ(AsynchronousBuckets().OnPull(pull, BucketFacts{}).action, Action::kApply);
}

TEST(AsynchronousTest, BoundHoldsAboveItAndNamesTheSlowest) {
  const AsynchronousCluster policy({.max_rounds_ahead = 2});
  std::vector<MemberProgress> members = {{WorkerId(1), "fast", 5, true, false},
                                         {WorkerId(2), "slow", 3, false, true}};
  ClusterFacts cluster;
  cluster.members = members;
  EXPECT_EQ(policy.OnGrant(members[0], cluster).action, Action::kApply);
  members[0].rounds_completed = 6;
  EXPECT_EQ(policy.OnGrant(members[0], cluster).reason,
            "the next round of fast would be 3 rounds ahead of slow, more than "
            "--max_rounds_ahead=2; waits for "
            "slow");
  EXPECT_EQ(AsynchronousCluster({}).OnGrant(members[0], cluster).action, Action::kApply);
}

class GraceTest : public testing::Test {
 protected:
  // Returns the decision for `a`, which has waited for `waited`, while `b` has worked for `worked`.
  // Both usually take ten seconds.
  Decision Grant(absl::Duration waited, absl::Duration worked) {
    members_[0].since = waited;
    members_[1].since = worked;
    ClusterFacts cluster;
    cluster.members = members_;
    return policy_.OnGrant(members_[0], cluster);
  }

  const AsynchronousCluster policy_{{.grace = 0.2}};
  std::vector<MemberProgress> members_ = {
      {WorkerId(1), "a", 5, /*waiting=*/true, /*working=*/false, absl::Seconds(10)},
      {WorkerId(2), "b", 5, /*waiting=*/false, /*working=*/true, absl::Seconds(10)}};
};

TEST_F(GraceTest, WhoIsAboutToHandInIsMet) {
  const Decision met = Grant(absl::ZeroDuration(), absl::Seconds(9));
  EXPECT_EQ(met.action, Action::kHold);
  EXPECT_THAT(met.reason, HasSubstr("a waits for b"));
  EXPECT_EQ(Grant(absl::Seconds(1), absl::Seconds(9.5)).action, Action::kHold);
  // `b` should have reported one second ago. `a` still waits for it.
  EXPECT_EQ(Grant(absl::Seconds(1), absl::Seconds(11)).action, Action::kHold);
}

TEST_F(GraceTest, NobodyWaitsForWhoTakesLongerOrIsLongOverdue) {
  EXPECT_EQ(Grant(absl::ZeroDuration(), absl::Seconds(7)).action, Action::kApply);
  EXPECT_EQ(Grant(absl::ZeroDuration(), absl::Seconds(13)).action, Action::kApply);
  EXPECT_EQ(Grant(absl::Seconds(1), absl::Seconds(8.5)).action, Action::kApply)
      << "due in 1.5 s, and 1 s is left";
  EXPECT_EQ(Grant(absl::Seconds(2), absl::Seconds(10)).action, Action::kApply) << "it is over";
}

TEST_F(GraceTest, OnlyThoseAreMetWhosePaceIsKnown) {
  members_[1].usual_round.reset();
  EXPECT_EQ(Grant(absl::ZeroDuration(), absl::Seconds(9)).action, Action::kApply);
  members_[1].usual_round = absl::Seconds(10);
  members_[0].usual_round.reset();
  EXPECT_EQ(Grant(absl::ZeroDuration(), absl::Seconds(9)).action, Action::kApply);
}

TEST(StalenessTest, InverseScalingWeakensOldGradients) {
  EXPECT_EQ(AsyncLearningRateFactor(job::StalenessScaling::kNone, 9), 1.0);
  EXPECT_EQ(AsyncLearningRateFactor(job::StalenessScaling::kInverse, 0), 1.0);
  EXPECT_EQ(AsyncLearningRateFactor(job::StalenessScaling::kInverse, 3), 0.25);
  EXPECT_EQ(AsyncLearningRateFactor(job::StalenessScaling::kInverse, -1), 1.0);
}

}  // namespace
}  // namespace lodestar::sync
