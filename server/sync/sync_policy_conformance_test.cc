#include "server/sync/sync_policy_conformance.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/sync/sync_policy_factory.h"

namespace lodestar {
namespace {

struct Subject {
  std::string name;
  Mode mode;
  int quorum = 0;
  int max_rounds_ahead = -1;
};

JobSpec JobOf(const Subject& subject) {
  JobSpec job;
  job.mode = subject.mode;
  job.quorum = subject.quorum;
  job.max_rounds_ahead = subject.max_rounds_ahead;
  return job;
}

class SyncPolicyConformanceTest : public ::testing::TestWithParam<Subject> {
 protected:
  std::unique_ptr<const SyncPolicy> policy_ = MakeSyncPolicy(JobOf(GetParam()));
};

TEST_P(SyncPolicyConformanceTest, KeepsTheLawsUnderAnySchedule) {
  // Lock step bounds the rosters, not those who join between rounds.
  const int bound = policy_->uses_rosters() ? -1 : GetParam().max_rounds_ahead;
  int64_t updates = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    PolicyModel model(*policy_,
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

TEST_P(SyncPolicyConformanceTest, RefusesTheOtherKindOfVector) {
  PushFacts push;
  push.worker = WorkerId(1);
  push.incarnation = Incarnation(1);
  push.standing = Standing::kMember;
  push.is_pseudo_gradient = !policy_->takes_pseudo_gradients();
  const Decision decision = policy_->OnPush(push, BucketFacts{});
  EXPECT_EQ(decision.action, Action::kReject);
  EXPECT_EQ(decision.code, absl::StatusCode::kInvalidArgument);
}

TEST_P(SyncPolicyConformanceTest, TellsTheGoneFromTheUnannounced) {
  PushFacts push;
  push.worker = WorkerId(1);
  push.incarnation = Incarnation(1);
  push.is_pseudo_gradient = policy_->takes_pseudo_gradients();
  push.standing = Standing::kGone;
  EXPECT_EQ(policy_->OnPush(push, BucketFacts{}).code, absl::StatusCode::kAborted);
  push.standing = Standing::kUnknown;
  EXPECT_EQ(policy_->OnPush(push, BucketFacts{}).code, absl::StatusCode::kUnavailable);
  PullFacts pull{WorkerId(1), Incarnation(1), Version(0), Standing::kGone};
  EXPECT_EQ(policy_->OnPull(pull, BucketFacts{}).code, absl::StatusCode::kAborted);
  pull.standing = Standing::kUnknown;
  EXPECT_EQ(policy_->OnPull(pull, BucketFacts{}).action, Action::kApply);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, SyncPolicyConformanceTest,
    ::testing::Values(Subject{"Sync", Mode::kSync}, Subject{"SyncQuorumOne", Mode::kSync, 1},
                      Subject{"SyncQuorumTwo", Mode::kSync, 2}, Subject{"Async", Mode::kAsync},
                      Subject{"AsyncLockStep", Mode::kAsync, 0, 0},
                      Subject{"AsyncBoundOne", Mode::kAsync, 0, 1},
                      Subject{"AsyncBoundThree", Mode::kAsync, 0, 3},
                      Subject{"LocalSgd", Mode::kLocalSgd}),
    [](const ::testing::TestParamInfo<Subject>& info) { return info.param.name; });

// A member at count c may start one more round exactly if c - slowest <= bound; so completed counts
// never differ by more than bound + 1, whoever is slow, joins or dies.
TEST(StaleSynchronousTest, NoScheduleBreaksTheBound) {
  constexpr int kSchedules = 100000;
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    const int bound = 1 + static_cast<int>(seed % 4);
    JobSpec job;
    job.mode = Mode::kAsync;
    job.max_rounds_ahead = bound;
    const auto policy = MakeSyncPolicy(job);
    PolicyModel model(*policy,
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
}  // namespace lodestar
