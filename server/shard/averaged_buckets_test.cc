// SPDX-License-Identifier: Apache-2.0

// Tests buckets of averaged tensors: how a shard updates them, and that they have no effect on the
// shard's gradient norms and directions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/shard_observer.h"
#include "server/shard/testing/test_cluster.h"

namespace lodestar::shard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FaultLog : public ShardObserver {
 public:
  void OnFault(const sync::WorkerFault& fault) override { faults.push_back(fault.text); }
  std::vector<std::string> faults;
};

bool IsAveraged(const TestCluster& cluster, int64_t element) {
  const params::ElementRange range = cluster.layout().block(1);
  return element >= range.begin && element < range.end;
}

// Returns a contribution that is `value` in averaged tensors and `gradient` in all others.
std::vector<float> Contribution(const TestCluster& cluster, float gradient, float value) {
  std::vector<float> contribution(cluster.layout().num_elements(), gradient);
  for (size_t i = 0; i < contribution.size(); ++i) {
    if (IsAveraged(cluster, static_cast<int64_t>(i))) contribution[i] = value;
  }
  return contribution;
}

job::JobSpec SyncJob() {
  job::JobSpec job;
  job.optimizer.kind = job::OptimizerKind::kSgd;
  job.norm_limit = 0.0;
  return job;
}

TEST(AveragedBucketsTest, TheMeanIsByTheSamplesOfThoseWhoCame) {
  job::JobSpec job = SyncJob();
  job.optimizer = {.kind = job::OptimizerKind::kAdamW, .weight_decay = 0.5};
  TestCluster cluster({.job = job, .has_averaged = true, .num_shards = 2});
  cluster.LoadConstant(5.0f);
  cluster.SetMembers(3);
  cluster.OpenRound(0, {1, 3, 4}, 0.1);
  ASSERT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0), Contribution(cluster, 1.0f, 8.0f)));
  ASSERT_OK(cluster.PushAll(TestCluster::Key(2, 0, 0), Contribution(cluster, 1.0f, -4.0f)));
  cluster.Drop(3);
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(1));
  for (size_t i = 0; i < weights.size(); ++i) {
    if (IsAveraged(cluster, static_cast<int64_t>(i))) {
      ASSERT_FLOAT_EQ(weights[i], (1 * 8.0f + 3 * -4.0f) / 4);
    } else {
      ASSERT_LT(weights[i], 5.0f);
    }
  }
}

TEST(AveragedBucketsTest, ClippingSeesGradientsOnly) {
  const auto train = [](float value) {
    job::JobSpec job = SyncJob();
    job.clip_norm = 0.5;
    TestCluster cluster({.job = job, .has_averaged = true, .num_shards = 2});
    cluster.LoadConstant(1.0f);
    cluster.SetMembers(1);
    cluster.OpenRound(0, {1}, 1.0);
    EXPECT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0), Contribution(cluster, 2.0f, value)));
    const absl::StatusOr<std::vector<float>> weights = cluster.Weights(1);
    EXPECT_OK(weights);
    EXPECT_EQ((*weights)[cluster.layout().block(1).begin], value);
    return (*weights)[0];
  };
  EXPECT_EQ(train(0.0f), train(1e6f));
  EXPECT_LT(train(0.0f), 1.0f);
}

TEST(AveragedBucketsTest, NobodyIsBlamedForValues) {
  job::JobSpec job = SyncJob();
  job.norm_limit = 2.0;
  FaultLog log;
  TestCluster cluster({.job = job, .has_averaged = true, .observer = &log});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(4);
  constexpr int kRounds = 150;  // enough rounds for NormWatch and DirectionWatch to judge
  for (int round = 0; round < kRounds; ++round) {
    cluster.OpenRound(round, {1, 1, 1, 1}, 0.0);
    for (int worker = 1; worker <= 4; ++worker) {
      // The values of worker 4 are far longer than the values of the others, and point the other
      // way.
      const float value = worker == 4 ? -1000.0f : 1.0f;
      ASSERT_OK(cluster.PushAll(TestCluster::Key(worker, round, round),
                                Contribution(cluster, 0.25f, value)));
    }
    ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(round + 1));
    ASSERT_FLOAT_EQ(weights[cluster.layout().block(1).begin], (3 * 1.0f - 1000.0f) / 4);
  }
  EXPECT_THAT(log.faults, IsEmpty());
}

TEST(AveragedBucketsTest, AMedianIsOneOfValues) {
  job::JobSpec job = SyncJob();
  job.robust_mean = *job::ParseRobustMean("median");
  TestCluster cluster({.job = job, .has_averaged = true});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(3);
  cluster.OpenRound(0, {1, 1, 1}, 0.0);
  for (int worker = 1; worker <= 3; ++worker) {
    const float value = worker == 2 ? 1e9f : 2.0f;
    ASSERT_OK(cluster.PushAll(TestCluster::Key(worker, 0, 0), Contribution(cluster, 0.0f, value)));
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<float> weights, cluster.Weights(1));
  EXPECT_EQ(weights[cluster.layout().block(1).begin], 2.0f);
}

TEST(AveragedBucketsTest, ValuesTravelAsTheyAre) {
  job::JobSpec job = SyncJob();
  job.push_encoding = params::Encoding::kInt8;
  TestCluster cluster({.job = job, .has_averaged = true});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(1);
  cluster.OpenRound(0, {1}, 0.0);
  uint32_t averaged = 0;
  while (!cluster.layout().is_averaged(cluster.buckets()[averaged].block)) ++averaged;
  const auto refusal = [&](params::Encoding encoding, float scale) {
    ContributionKey key = TestCluster::Key(1, 0, 0);
    key.encoding = encoding;
    key.scale = scale;
    absl::Status refused;
    cluster.shard(0).BeginBucket(key, averaged, [&refused](absl::StatusOr<StagedBucket> staged) {
      refused = staged.status();
    });
    return refused;
  };
  EXPECT_THAT(refusal(params::Encoding::kInt8, 1.0f),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("in int8, but this job takes fp32"),
                             HasSubstr("which is averaged"))));
  EXPECT_THAT(refusal(params::Encoding::kFp32, 0.5f),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("scale is 0.5")));
}

}  // namespace
}  // namespace lodestar::shard
