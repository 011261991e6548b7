// SPDX-License-Identifier: Apache-2.0

// Tests how much memory a shard takes, and what happens if it does not get memory or exceeds its
// limit. Nothing aborts, rounds still end, and the state can be saved.
#include "common/plan/shard_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/job/robust_mean.h"
#include "common/testing/status_matchers.h"
#include "server/optimizer/optimizer_factory.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/testing/test_cluster.h"
#include "server/sync/policy_factory.h"

namespace lodestar::shard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

job::JobSpec TestJob() {
  job::JobSpec job;
  job.schedule.total_rounds = 10;
  job.batch_size = 1;
  job.bucket_bytes = 2048;  // as in TestCluster
  return job;
}

TEST(ShardMemoryTest, TheEstimateCoversWhatAShardAllocates) {
  for (params::Encoding pull :
       {params::Encoding::kFp32, params::Encoding::kInt8, params::Encoding::kInt4}) {
    for (job::OptimizerKind optimizer : {job::OptimizerKind::kAdamW, job::OptimizerKind::kSgd}) {
      job::JobSpec job = TestJob();
      job.optimizer.kind = optimizer;
      job.pull_encoding = pull;
      TestCluster cluster({.job = job, .staging_bytes = plan::kStagingBytes});
      cluster.LoadInitial();
      cluster.SetMembers(2);
      for (int64_t round = 0; round < 3; ++round) {
        cluster.OpenRound(round, {1, 1});
        for (int worker : {1, 2}) {
          EXPECT_OK(
              cluster.PushAll(TestCluster::Key(worker, round, round), cluster.Vector(worker)));
        }
      }
      const auto measured = static_cast<int64_t>(cluster.shard(0).stats().resident_bytes);
      const plan::ShardMemory estimate =
          plan::EstimateShardMemory(job, cluster.layout().num_elements());
      EXPECT_GE(estimate.steady(), measured) << params::EncodingName(pull) << estimate.Describe();
      // The estimate may be higher than measured: not all staging slots are used here, and few
      // encoded changes are kept.
      EXPECT_LE(estimate.steady(), 2 * measured)
          << params::EncodingName(pull) << estimate.Describe();
    }
  }
}

TEST(ShardMemoryTest, ARobustMeanTakesAPageForEveryWorker) {
  job::JobSpec job = TestJob();
  job.min_workers = 8;
  const plan::ShardMemory plain =
      plan::EstimateShardMemory(job, TestCluster({.job = job}).layout().num_elements());
  job.robust_mean = *job::ParseRobustMean("median");
  TestCluster cluster({.job = job, .staging_bytes = plan::kStagingBytes});
  cluster.LoadInitial();
  cluster.SetMembers(8);
  for (int64_t round = 0; round < 3; ++round) {
    cluster.OpenRound(round, std::vector<int64_t>(8, 1));
    for (int worker = 1; worker <= 8; ++worker) {
      EXPECT_OK(cluster.PushAll(TestCluster::Key(worker, round, round), cluster.Vector(worker)));
    }
  }
  const auto measured = static_cast<int64_t>(cluster.shard(0).stats().resident_bytes);
  const plan::ShardMemory estimate =
      plan::EstimateShardMemory(job, cluster.layout().num_elements());
  EXPECT_EQ(estimate.sums, 8 * plain.sums);
  EXPECT_GE(estimate.steady(), measured) << estimate.Describe();
  EXPECT_LE(estimate.steady(), 2 * measured) << estimate.Describe();
}

TEST(ShardMemoryTest, WhoSentAnElementTakesAsMuchAsItsSum) {
  job::JobSpec job = TestJob();
  const plan::ShardMemory plain = plan::EstimateShardMemory(job, 250'000'000);
  job.push_encoding = params::Encoding::TopK(64, 2);
  EXPECT_EQ(plan::EstimateShardMemory(job, 250'000'000).sums, plain.sums);
  job.topk_divisor = job::TopKDivisor::kSenders;
  EXPECT_EQ(plan::EstimateShardMemory(job, 250'000'000).sums, 2 * plain.sums);
}

TEST(ShardMemoryTest, DirectionsTakeAsMuchAsTheSum) {
  job::JobSpec job = TestJob();
  job.mode = job::Mode::kLocalSgd;
  const plan::ShardMemory plain = plan::EstimateShardMemory(job, 250'000'000);
  job.outer_reduction = job::OuterReduction::kDirection;
  EXPECT_EQ(plan::EstimateShardMemory(job, 250'000'000).sums, 2 * plain.sums);
}

// The case is a 7B model on a machine of 24 GB.
TEST(ShardMemoryTest, ALargeModelIsRefusedWithTheServersThatItTakes) {
  job::JobSpec job = TestJob();
  job.optimizer.kind = job::OptimizerKind::kAdamW;
  job.bucket_bytes = params::kDefaultBucketBytes;
  constexpr int64_t kElements = 6'658'596'864;
  const machine::HostMemory host{.total_bytes = 24'000'000'000,
                                 .available_bytes = 20'000'000'000,
                                 .limited_by = "this machine"};
  const plan::ShardMemory needed = plan::EstimateShardMemory(job, kElements);
  EXPECT_THAT(
      plan::CheckShardMemory(needed, host),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("needs 106.60 GB: weights 26.63 GB, optimizer state 53.27 GB, sums "
                               "of contributions 26.63 GB, contributions in transit 67.1 MB"),
                     HasSubstr("at least 6 such servers"))));
  EXPECT_OK(plan::CheckShardMemory(plan::EstimateShardMemory(job, kElements / 6), host));
}

// common/plan/shard_memory computes how many state vectors the optimizer of a job has. The
// optimizer itself must have the same number. Both must agree on the jobs whose shards keep a list
// of expected contributors for each bucket.
TEST(ShardMemoryTest, StateIsThatOfTheServersOptimizer) {
  job::JobSpec job = TestJob();
  int num_jobs = 0;
  for (const job::Mode mode :
       {job::Mode::kSync, job::Mode::kAsync, job::Mode::kLocalSgd, job::Mode::kAsyncLocalSgd}) {
    for (const job::OptimizerKind kind :
         {job::OptimizerKind::kSgd, job::OptimizerKind::kMomentum, job::OptimizerKind::kNesterov,
          job::OptimizerKind::kAdamW, job::OptimizerKind::kReduce}) {
      for (const job::OuterOptimizerKind outer :
           {job::OuterOptimizerKind::kAverage, job::OuterOptimizerKind::kNesterov,
            job::OuterOptimizerKind::kSgd, job::OuterOptimizerKind::kEasgd,
            job::OuterOptimizerKind::kAdam}) {
        for (const params::Encoding push : {params::Encoding(params::Encoding::kFp32),
                                            params::Encoding(params::Encoding::kInt8)}) {
          job.mode = mode;
          job.optimizer.kind = kind;
          job.outer_optimizer = outer;
          job.push_encoding = push;
          EXPECT_EQ(plan::NumServerStateVectors(job),
                    optimizer::MakeServerOptimizer(job)->num_state_vectors())
              << NameOf(mode) << " " << NameOf(kind) << " " << NameOf(outer);
          EXPECT_EQ(job::HasRosters(job), sync::MakeBucketPolicy(job)->uses_rosters());
          ++num_jobs;
        }
      }
    }
  }
  EXPECT_EQ(num_jobs, 200);
}

TEST(ShardMemoryTest, EachPartIsNamed) {
  job::JobSpec job = TestJob();
  job.bucket_bytes = params::kDefaultBucketBytes;
  job.pull_encoding = params::Encoding::kInt8;
  const plan::ShardMemory memory = plan::EstimateShardMemory(job, 250'000'000);
  EXPECT_EQ(memory.weights, 1'000'000'000);
  EXPECT_EQ(memory.checkpoint(), 3'000'000'000);
  EXPECT_THAT(
      memory.Describe(),
      AllOf(HasSubstr("weights 1.00 GB, optimizer state 2.00 GB, sums of contributions 1.00 GB"),
            HasSubstr("weights as workers have them 2.00 GB, contributions in transit 67.1 MB")));
}

TEST(ShardMemoryTest, WhatDoesNotFitIsRefusedWithBothNumbers) {
  job::JobSpec job = TestJob();
  job.bucket_bytes = params::kDefaultBucketBytes;
  const plan::ShardMemory needed = plan::EstimateShardMemory(job, 250'000'000);
  machine::HostMemory host{.total_bytes = 4'000'000'000,
                           .available_bytes = 3'500'000'000,
                           .limited_by = "the control group /jobs/7"};
  EXPECT_THAT(plan::CheckShardMemory(needed, host),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("needs 4.07 GB"), HasSubstr("/jobs/7 has 3.50 GB"),
                             HasSubstr("at least 2 such servers"))));
  host.available_bytes = 5'000'000'000;
  const auto warning = plan::CheckShardMemory(needed, host);
  ASSERT_OK(warning);
  EXPECT_THAT(*warning, HasSubstr("while a checkpoint is written"));
  host.available_bytes = 8'000'000'000;
  EXPECT_EQ(*plan::CheckShardMemory(needed, host), "");
  EXPECT_EQ(*plan::CheckShardMemory(needed, machine::HostMemory{}), "")
      << "nothing is known of the host";
}

class OutOfMemoryTest : public testing::Test, public ShardObserver {
 protected:
  void OnOutOfMemory(absl::string_view text) override { texts_.emplace_back(text); }

  static job::JobSpec Job() {
    job::JobSpec job;
    job.optimizer.kind = job::OptimizerKind::kMomentum;
    return job;
  }

  // Returns the bytes of the loaded weights and of this number of staging slots.
  static int64_t BytesWithSlots(int slots) {
    TestCluster unlimited({.job = Job()});
    unlimited.LoadConstant(0.0f);
    int64_t slot_bytes = 0;
    for (const params::Bucket& bucket : unlimited.buckets()) {
      slot_bytes = std::max(slot_bytes, bucket.range.size() * int64_t{sizeof(float)});
    }
    return static_cast<int64_t>(unlimited.shard(0).stats().resident_bytes) + slots * slot_bytes;
  }

  std::vector<std::string> texts_;
};

TEST_F(OutOfMemoryTest, WeightsThatDoNotFitAreAnErrorOfLoading) {
  TestCluster cluster({.job = Job(), .system_bytes = 4096, .observer = this});
  EXPECT_THAT(cluster.shard(0).LoadInitial(1),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("out of memory")));
  EXPECT_FALSE(cluster.shard(0).HasWeights());
}

TEST_F(OutOfMemoryTest, SumsThatDoNotFitAreToldAndTheRoundEndsWithoutThem) {
  TestCluster cluster({.job = Job(), .system_bytes = BytesWithSlots(2), .observer = this});
  cluster.LoadConstant(0.0f);
  cluster.SetMembers(2);
  cluster.OpenRound(0, {1, 1});
  const std::vector<float> ones(cluster.layout().num_elements(), 1.0f);
  EXPECT_THAT(texts_, IsEmpty());
  for (const params::Bucket& bucket : cluster.buckets()) {
    cluster.PushBucket(TestCluster::Key(1, 0, 0), bucket.index, ones);
  }
  EXPECT_THAT(texts_, ElementsAre(HasSubstr("the system does not give")));
  cluster.Drop(1);
  cluster.Drop(2);
  std::optional<absl::StatusOr<ShardState>> saved;
  cluster.shard(0).Snapshot(Round(1), [&](absl::StatusOr<ShardState> state) { saved = state; });
  ASSERT_TRUE(saved.has_value());
  EXPECT_OK(*saved);
}

TEST_F(OutOfMemoryTest, AnUpdateThatCannotGoElsewhereLeavesWhatIsBeingSaved) {
  TestCluster cluster({.job = Job(), .system_bytes = BytesWithSlots(2), .observer = this});
  cluster.LoadConstant(3.0f);
  cluster.SetMembers(1);
  std::optional<absl::StatusOr<ShardState>> saved;
  cluster.shard(0).Snapshot(Round(0), [&](absl::StatusOr<ShardState> state) { saved = state; });
  ASSERT_OK(*saved);
  cluster.OpenRound(0, {1});
  EXPECT_OK(cluster.PushAll(TestCluster::Key(1, 0, 0),
                            std::vector<float>(cluster.layout().num_elements(), 1.0f)));
  EXPECT_EQ(texts_.size(), 1);
  EXPECT_EQ(cluster.shard(0).stats().version, Version(1));
  for (const BucketState& bucket : (*saved)->buckets) {
    EXPECT_EQ(bucket.weights->span().front(), 3.0f);
  }
}

TEST_F(OutOfMemoryTest, BeyondTheLimitTheRoundUnderWayIsWholeAndTold) {
  TestCluster unlimited({.job = Job()});
  TestCluster limited({.job = Job(), .max_bytes = BytesWithSlots(2), .observer = this});
  for (TestCluster* cluster : {&unlimited, &limited}) {
    cluster->LoadConstant(3.0f);
    cluster->SetMembers(2);
    std::optional<absl::StatusOr<ShardState>> saved;
    cluster->shard(0).Snapshot(Round(0), [&](absl::StatusOr<ShardState> state) { saved = state; });
    cluster->OpenRound(0, {1, 1});
    for (int worker : {1, 2}) {
      EXPECT_OK(cluster->PushAll(TestCluster::Key(worker, 0, 0), cluster->Vector(worker)));
    }
  }
  EXPECT_THAT(texts_, ElementsAre(HasSubstr("that this server may use is in use")));
  EXPECT_TRUE(SameBits(*limited.Weights(1), *unlimited.Weights(1)));
}

}  // namespace
}  // namespace lodestar::shard
