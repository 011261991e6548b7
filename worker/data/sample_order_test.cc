// SPDX-License-Identifier: Apache-2.0

#include "worker/data/sample_order.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar::data {
namespace {

std::vector<int64_t> OneEpoch(uint64_t seed, int64_t num_samples, int64_t epoch) {
  SampleOrder order(seed, num_samples);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < num_samples; ++i) {
    const SampleRef ref = order.At(epoch * num_samples + i);
    EXPECT_EQ(ref.epoch, epoch);
    indices.push_back(ref.index);
  }
  return indices;
}

TEST(SampleOrderTest, VisitsEverySampleOncePerEpoch) {
  for (int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 1437, 4097, 1000003}) {
    for (int64_t epoch : {0, 1, 7}) {
      std::vector<bool> seen(n, false);
      for (int64_t index : OneEpoch(42, n, epoch)) {
        ASSERT_GE(index, 0) << "n=" << n;
        ASSERT_LT(index, n) << "n=" << n;
        ASSERT_FALSE(seen[index]) << "n=" << n << " epoch=" << epoch << " index=" << index;
        seen[index] = true;
      }
    }
  }
}

TEST(SampleOrderTest, EpochsHaveDifferentOrders) {
  EXPECT_NE(OneEpoch(1, 1437, 0), OneEpoch(1, 1437, 1));
  EXPECT_NE(OneEpoch(1, 65, 3), OneEpoch(1, 65, 4));
}

TEST(SampleOrderTest, SeedsHaveDifferentOrders) {
  EXPECT_NE(OneEpoch(1, 1437, 0), OneEpoch(2, 1437, 0));
  EXPECT_EQ(OneEpoch(1, 1437, 0), OneEpoch(1, 1437, 0));
}

TEST(SampleOrderTest, DependsOnThePositionOnly) {
  SampleOrder forward(9, 5000);
  SampleOrder jumping(9, 5000);
  for (int64_t position : {12345, 3, 4999, 5000, 777777, 12345}) {
    const SampleRef a = forward.At(position);
    const SampleRef b = jumping.At(position);
    EXPECT_EQ(a.epoch, b.epoch);
    EXPECT_EQ(a.index, b.index);
  }
}

TEST(SampleOrderTest, ScattersNeighbours) {
  // For a random permutation the mean of |Permute(i + 1) - Permute(i)| is n / 3.
  constexpr int64_t kSamples = 100000;
  const std::vector<int64_t> indices = OneEpoch(5, kSamples, 0);
  double sum = 0.0;
  int64_t num_fixed = 0;
  for (int64_t i = 0; i + 1 < kSamples; ++i) {
    sum += static_cast<double>(std::abs(indices[i + 1] - indices[i]));
    num_fixed += indices[i] == i;
  }
  EXPECT_NEAR(sum / kSamples, kSamples / 3.0, kSamples / 100.0);
  EXPECT_LT(num_fixed, 12);  // One is expected.
}

TEST(SampleOrderTest, TakesPositionsFarBeyondOneEpoch) {
  SampleOrder order(1, 7);
  const SampleRef ref = order.At(int64_t{1} << 60);
  EXPECT_EQ(ref.epoch, (int64_t{1} << 60) / 7);
  EXPECT_LT(ref.index, 7);
  SampleOrder huge(1, int64_t{1} << 61);
  EXPECT_LT(huge.At(123).index, int64_t{1} << 61);
}

TEST(SampleOrderTest, OrderThatIsNotShuffledIsThatOfTheNumbersInEachEpoch) {
  const SampleOrder order(9, 3, /*is_shuffled=*/false);
  for (int64_t position = 0; position < 7; ++position) {
    EXPECT_EQ(order.At(position).index, position % 3);
    EXPECT_EQ(order.At(position).epoch, position / 3);
  }
}

}  // namespace
}  // namespace lodestar::data
