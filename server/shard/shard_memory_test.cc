#include "server/shard/shard_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "server/shard/test_cluster.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JobSpec TestJob() {
  JobSpec job;
  job.schedule.total_rounds = 10;
  job.batch_size = 1;
  job.bucket_bytes = 2048;  // as TestCluster's
  return job;
}

TEST(ShardMemoryTest, TheEstimateCoversWhatAShardAllocates) {
  for (Encoding pull : {Encoding::kFp32, Encoding::kInt8}) {
    for (OptimizerKind optimizer : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
      JobSpec job = TestJob();
      job.optimizer.kind = optimizer;
      job.pull_encoding = pull;
      TestCluster cluster({.job = job, .staging_bytes = kStagingBytes});
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
      const ShardMemory estimate = EstimateShardMemory(job, cluster.layout().num_elements());
      EXPECT_GE(estimate.steady(), measured) << EncodingName(pull) << estimate.Describe();
      // Not all slots are used here, and of the changes of the weights there are few.
      EXPECT_LE(estimate.steady(), 2 * measured) << EncodingName(pull) << estimate.Describe();
    }
  }
}

TEST(ShardMemoryTest, EachPartIsNamed) {
  JobSpec job = TestJob();
  job.bucket_bytes = kDefaultBucketBytes;
  job.pull_encoding = Encoding::kInt8;
  const ShardMemory memory = EstimateShardMemory(job, 250'000'000);
  EXPECT_EQ(memory.weights, 1'000'000'000);
  EXPECT_EQ(memory.checkpoint(), 3'000'000'000);
  EXPECT_THAT(memory.Describe(),
              AllOf(HasSubstr("weights 1.00 GB, optimizer state 2.00 GB, sums 1.00 GB"),
                    HasSubstr("shadow of the weights 2.00 GB, staging 67.1 MB")));
}

TEST(ShardMemoryTest, WhatDoesNotFitIsRefusedWithBothNumbers) {
  JobSpec job = TestJob();
  job.bucket_bytes = kDefaultBucketBytes;
  const ShardMemory needed = EstimateShardMemory(job, 250'000'000);
  HostMemory host{.total_bytes = 4'000'000'000,
                  .available_bytes = 3'500'000'000,
                  .limited_by = "the control group /jobs/7"};
  EXPECT_THAT(CheckShardMemory(needed, host),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("needs 4.07 GB"), HasSubstr("/jobs/7 has 3.50 GB"),
                             HasSubstr("--shard=I/K"))));
  host.available_bytes = 5'000'000'000;
  const auto warning = CheckShardMemory(needed, host);
  ASSERT_OK(warning);
  EXPECT_THAT(*warning, HasSubstr("while a checkpoint is written"));
  host.available_bytes = 8'000'000'000;
  EXPECT_EQ(*CheckShardMemory(needed, host), "");
  EXPECT_EQ(*CheckShardMemory(needed, HostMemory{}), "") << "nothing is known of the host";
}

}  // namespace
}  // namespace lodestar
