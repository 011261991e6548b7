// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/shards/norm_reduction.h"

#include "gtest/gtest.h"

namespace lodestar::shards {
namespace {

TEST(NormReductionTest, SumsSegmentsInOrderOfShardWhateverTheOrderOfArrival) {
  // 1e16 + 1 loses the 1, so the order of the sum matters.
  NormReduction norms(2);
  EXPECT_FALSE(norms.Add(Round(0), 1, {1.0, -1e16}));
  ASSERT_TRUE(norms.Add(Round(0), 0, {1e16}));
  EXPECT_EQ(norms.TotalOf(Round(0)), (1e16 + 1.0) - 1e16);
}

TEST(NormReductionTest, RoundsDoNotMix) {
  NormReduction norms(2);
  EXPECT_FALSE(norms.Add(Round(1), 0, {1.0}));
  EXPECT_FALSE(norms.Add(Round(2), 1, {2.0}));
}

TEST(NormReductionTest, WhatComesAgainCountsOnceAndChangesNoTotal) {
  NormReduction norms(2);
  EXPECT_FALSE(norms.Add(Round(3), 0, {1.0}));
  EXPECT_FALSE(norms.Add(Round(3), 0, {1.0}));
  EXPECT_TRUE(norms.Add(Round(3), 1, {4.0}));
  EXPECT_TRUE(norms.Add(Round(3), 0, {7.0}));
  EXPECT_EQ(norms.TotalOf(Round(3)), 5.0);
}

TEST(NormReductionTest, KeepsTheLastTotalsOnly) {
  NormReduction norms(1);
  for (int64_t round = 0; round < 100; ++round) norms.Add(Round(round), 0, {1.0});
  EXPECT_LT(norms.totals().size(), 8);
  EXPECT_TRUE(norms.totals().contains(Round(99)));
}

TEST(NormReductionTest, NothingIsLeftOfALifeThatIsOver) {
  NormReduction norms(2);
  norms.Add(Round(0), 0, {1.0});
  norms.Clear();
  EXPECT_FALSE(norms.Add(Round(0), 1, {2.0}));
}

}  // namespace
}  // namespace lodestar::shards
