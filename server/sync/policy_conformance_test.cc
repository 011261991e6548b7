// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/sync/policy_factory.h"
#include "server/sync/testing/policy_model.h"

namespace lodestar::sync {
namespace {

struct Subject {
  std::string name;
  job::Mode mode;
  int quorum = 0;
  int max_rounds_ahead = -1;
};

job::JobSpec JobOf(const Subject& subject) {
  job::JobSpec job;
  job.mode = subject.mode;
  job.quorum = subject.quorum;
  job.max_rounds_ahead = subject.max_rounds_ahead;
  return job;
}

class PolicyConformanceTest : public ::testing::TestWithParam<Subject> {
 protected:
  const std::unique_ptr<const BucketPolicy> bucket_policy_ = MakeBucketPolicy(JobOf(GetParam()));
  const std::unique_ptr<const ClusterPolicy> cluster_policy_ = MakeClusterPolicy(JobOf(GetParam()));
};

TEST_P(PolicyConformanceTest, KeepsTheLawsUnderAnySchedule) {
  // If members share rounds, no member can be ahead of another. So the bound is checked only
  // without rosters.
  const int bound = cluster_policy_->uses_rosters() ? -1 : GetParam().max_rounds_ahead;
  int64_t updates = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    PolicyModel model(*bucket_policy_, *cluster_policy_,
                      {.num_workers = 1 + static_cast<int>(seed % 5),
                       .num_buckets = 1 + static_cast<int>(seed % 3),
                       .min_workers = 1,
                       .death_rate = seed % 2 == 0 ? 0.02 : 0.2,
                       .max_rounds_ahead = bound},
                      seed);
    for (int step = 0; step < 200; ++step) {
      const absl::Status status = model.Step();
      ASSERT_TRUE(status.ok()) << "seed " << seed << " step " << step << ": " << status;
    }
    const absl::Status drained = model.Drain();
    ASSERT_TRUE(drained.ok()) << "seed " << seed << ": " << drained;
    updates += model.updates();
  }
  EXPECT_GT(updates, 300 * 4) << "the model must get somewhere";
}

TEST_P(PolicyConformanceTest, HoldsTheUnannouncedAndTellsTheGoneToBeginAnew) {
  PushFacts push;
  push.worker = WorkerId(1);
  push.incarnation = Incarnation(1);
  push.standing = Standing::kGone;
  EXPECT_EQ(bucket_policy_->OnPush(push, BucketFacts{}).code, absl::StatusCode::kAborted);
  push.standing = Standing::kUnknown;
  EXPECT_EQ(bucket_policy_->OnPush(push, BucketFacts{}).action, Action::kHold);
  PullFacts pull{WorkerId(1), Incarnation(1), Round(0), Standing::kGone};
  EXPECT_EQ(bucket_policy_->OnPull(pull, BucketFacts{}).code, absl::StatusCode::kAborted);
  pull.standing = Standing::kUnknown;
  EXPECT_EQ(bucket_policy_->OnPull(pull, BucketFacts{}).action, Action::kApply);
}

TEST_P(PolicyConformanceTest, ARepeatIsADuplicateEvenAfterItsWorkerLeft) {
  PushFacts push;
  push.worker = WorkerId(1);
  push.incarnation = Incarnation(2);
  push.last_counted = CountedContribution{Incarnation(2), Round(0)};
  push.standing = Standing::kGone;
  const Decision repeat = bucket_policy_->OnPush(push, BucketFacts{});
  EXPECT_EQ(repeat.action, Action::kDrop);
  EXPECT_TRUE(repeat.duplicate);
  push.incarnation = Incarnation(1);
  EXPECT_EQ(bucket_policy_->OnPush(push, BucketFacts{}).code, absl::StatusCode::kAborted);
}

// The shards of a job and its coordinator must use the same mode.
TEST_P(PolicyConformanceTest, BucketsAndClusterAgreeOnRosters) {
  EXPECT_EQ(bucket_policy_->uses_rosters(), cluster_policy_->uses_rosters());
  job::JobSpec job = JobOf(GetParam());
  EXPECT_FALSE(ClipsMean(job));
  job.clip_norm = 1.0;
  const bool sums_gradients = bucket_policy_->uses_rosters() && !job::HasLocalSteps(job);
  EXPECT_EQ(ClipsMean(job), sums_gradients);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, PolicyConformanceTest,
    ::testing::Values(Subject{"Sync", job::Mode::kSync},
                      Subject{"SyncQuorumOne", job::Mode::kSync, 1},
                      Subject{"SyncQuorumTwo", job::Mode::kSync, 2},
                      Subject{"Async", job::Mode::kAsync},
                      Subject{"AsyncLockStep", job::Mode::kAsync, 0, 0},
                      Subject{"AsyncBoundOne", job::Mode::kAsync, 0, 1},
                      Subject{"AsyncBoundThree", job::Mode::kAsync, 0, 3},
                      Subject{"LocalSgd", job::Mode::kLocalSgd},
                      Subject{"AsyncLocalSgd", job::Mode::kAsyncLocalSgd},
                      Subject{"AsyncLocalSgdQuorumTwo", job::Mode::kAsyncLocalSgd, 2},
                      Subject{"AsyncLocalSgdBoundThree", job::Mode::kAsyncLocalSgd, 0, 3}),
    [](const ::testing::TestParamInfo<Subject>& info) { return info.param.name; });

// A member with count c may start one more round exactly if c - slowest <= bound. So completed
// counts never differ by more than bound + 1, whichever worker is slow, joins or dies.
TEST(StaleSynchronousTest, NoScheduleBreaksTheBound) {
  constexpr int kSchedules = 100000;
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    const int bound = 1 + static_cast<int>(seed % 4);
    job::JobSpec job;
    job.mode = job::Mode::kAsync;
    job.max_rounds_ahead = bound;
    const auto bucket_policy = MakeBucketPolicy(job);
    const auto cluster_policy = MakeClusterPolicy(job);
    PolicyModel model(*bucket_policy, *cluster_policy,
                      {.num_workers = 2 + static_cast<int>(seed % 2),
                       .num_buckets = 0,
                       .death_rate = seed % 3 == 0 ? 0.05 : 0.0,
                       .max_rounds_ahead = bound},
                      seed);
    for (int step = 0; step < 24; ++step) {
      const absl::Status status = model.Step();
      ASSERT_TRUE(status.ok()) << "seed " << seed << " step " << step << ": " << status;
    }
  }
}

}  // namespace
}  // namespace lodestar::sync
