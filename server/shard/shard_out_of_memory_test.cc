// A shard that does not get the memory that it wants, or takes more than it may: nothing aborts,
// rounds still end, and what is there can be saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/shard/parameter_shard.h"
#include "server/shard/test_cluster.h"

namespace lodestar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OutOfMemoryTest : public testing::Test, public ShardObserver {
 protected:
  void OnOutOfMemory(absl::string_view text) override { texts_.emplace_back(text); }

  static JobSpec Job() {
    JobSpec job;
    job.optimizer.kind = OptimizerKind::kMomentum;
    return job;
  }

  // For what is loaded and so many slots of staging.
  static int64_t BytesWithSlots(int slots) {
    TestCluster unlimited({.job = Job()});
    unlimited.LoadConstant(0.0f);
    int64_t slot_bytes = 0;
    for (const Bucket& bucket : unlimited.buckets()) {
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
  for (const Bucket& bucket : cluster.buckets()) {
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
  EXPECT_THAT(texts_, ElementsAre(HasSubstr("that this server may take is in use")));
  EXPECT_TRUE(SameBits(*limited.Weights(1), *unlimited.Weights(1)));
}

}  // namespace
}  // namespace lodestar
