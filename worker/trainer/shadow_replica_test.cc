// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/shadow_replica.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/codec/codec.h"

namespace lodestar::trainer {
namespace {

using ::testing::Each;

messages::Registration SomeRegistration(int64_t num_elements) {
  messages::Registration registration;
  params::TensorSpec tensor{.name = "w", .shape = {num_elements}, .block = 0, .initializer = {}};
  auto map = std::make_shared<messages::ClusterMap>();
  map->layout = *params::Layout::FromTensors({tensor});
  map->buckets = {{0, 0, 0, {0, 300}}, {1, 0, 0, {300, num_elements}}};
  registration.map = std::move(map);
  registration.server_incarnation = 77;
  return registration;
}

// The test parameter is the number of elements. Weights of kLongPullBytes or more are written past
// the caches. Shorter weights are written through the caches.
class ShadowReplicaTest : public testing::TestWithParam<int64_t> {
 protected:
  ShadowReplicaTest() : registration_(SomeRegistration(GetParam())), weights_(GetParam(), 0.0f) {
    shadow_.Attach(registration_);
  }

  client::PullTarget Target(int bucket) {
    const params::Bucket& plan = registration_.buckets()[bucket];
    return shadow_.TargetOf(plan, weights_.data() + plan.range.begin);
  }
  void Complete(int bucket, int64_t version, int64_t num_changes) {
    const params::Bucket& plan = registration_.buckets()[bucket];
    shadow_.Complete(plan, {plan.index, Version(version), num_changes},
                     weights_.data() + plan.range.begin);
  }
  void ArriveWhole(int bucket, int64_t version, float value) {
    const client::PullTarget target = Target(bucket);
    std::fill(target.destination.begin(), target.destination.end(), value);
    Complete(bucket, version, 0);
  }
  // Delivers changes to a bucket. Each element of change c is step * (c + 1).
  void ArriveChanges(int bucket, int64_t version, int64_t num_changes, float step) {
    const client::PullTarget target = Target(bucket);
    const int64_t n = target.destination.size();
    for (int64_t c = 0; c < num_changes; ++c) {
      const std::vector<float> change(n, step * (c + 1));
      codec::CodecOf(params::Encoding::kInt8)
          .Encode(change.data(), n, {},
                  target.changes.data() + c * params::EncodedBytes(params::Encoding::kInt8, n));
    }
    Complete(bucket, version, num_changes);
  }
  absl::Span<const float> Weights(int bucket) { return Target(bucket).destination; }

  const messages::Registration registration_;
  ShadowReplica shadow_{params::Encoding::kInt8};
  std::vector<float> weights_;
};

INSTANTIATE_TEST_SUITE_P(Sizes, ShadowReplicaTest,
                         testing::Values(1300, client::kLongPullBytes / sizeof(float) + 3));

TEST_P(ShadowReplicaTest, NothingIsHeldAtFirst) {
  EXPECT_EQ(Target(0).held, std::nullopt);
  EXPECT_EQ(Target(0).destination.size(), 300);
  EXPECT_EQ(Target(1).destination.data(), weights_.data() + 300);
}

TEST_P(ShadowReplicaTest, ChangesAreAddedToWhatIsHeldWhateverBecameOfTheWeights) {
  ArriveWhole(0, 4, 1.0f);
  ArriveWhole(1, 4, 2.0f);
  EXPECT_EQ(Target(0).held, Version(4));
  // Overwrites the weights, as local steps do.
  std::fill(weights_.begin(), weights_.end(), -9.0f);
  ArriveChanges(0, 6, 2, 0.5f);
  ArriveChanges(1, 5, 1, 0.25f);
  EXPECT_THAT(Weights(0), Each(2.5f));
  EXPECT_THAT(Weights(1), Each(2.25f));
  EXPECT_EQ(Target(0).held, Version(6));
  EXPECT_EQ(Target(1).held, Version(5));
}

// Tests a bucket that is sent as weights, not as changes. Only a part of it arrives. The weights
// are then a mixture, but the shadow must not change.
TEST_P(ShadowReplicaTest, BrokenPullLeavesWhatIsHeld) {
  ArriveWhole(0, 4, 1.0f);
  const client::PullTarget broken = Target(0);
  std::fill_n(broken.destination.begin(), 100, 7.0f);
  std::fill_n(broken.changes.begin(), 100, std::byte{3});
  EXPECT_EQ(Target(0).held, Version(4));
  ArriveChanges(0, 5, 1, 1.0f);
  EXPECT_THAT(Weights(0), Each(2.0f));
}

TEST_P(ShadowReplicaTest, ThereIsRoomForAsManyChangesAsServersKeep) {
  const int64_t n = GetParam() - 300;
  EXPECT_EQ(Target(1).changes.size(), params::ChangesKept(params::Encoding::kInt8, n) *
                                          params::EncodedBytes(params::Encoding::kInt8, n));
}

TEST_P(ShadowReplicaTest, HeldOverLivesButNotOverServers) {
  ArriveWhole(0, 4, 1.0f);
  messages::Registration next = registration_;
  next.life.incarnation = Incarnation(2);
  shadow_.Attach(next);
  EXPECT_EQ(Target(0).held, Version(4));
  next.server_incarnation = 78;
  shadow_.Attach(next);
  EXPECT_EQ(Target(0).held, std::nullopt);
}

}  // namespace
}  // namespace lodestar::trainer
