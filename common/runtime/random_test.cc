// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace lodestar {
namespace {

TEST(PhiloxTest, MatchesPublishedVectors) {
  // Test vectors from kat_vectors of Random123, philox4x32 with 10 rounds.
  EXPECT_EQ(Philox(0, PhiloxBlock{0, 0, 0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~uint64_t{0}, PhiloxBlock{~0u, ~0u, ~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822, PhiloxBlock{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, EveryBitOfStreamAndIndexCounts) {
  std::set<PhiloxBlock> blocks = {Philox(5, 0, 0)};
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_TRUE(blocks.insert(Philox(5, uint64_t{1} << bit, 0)).second);
    EXPECT_TRUE(blocks.insert(Philox(5, 0, uint64_t{1} << bit)).second);
  }
}

TEST(UniformTest, StaysInsideZeroAndOne) {
  EXPECT_GT(UniformFrom(0), 0.0);
  EXPECT_LT(UniformFrom(std::numeric_limits<uint32_t>::max()), 1.0);
}

TEST(NormalsTest, HaveTheMomentsOfTheNormalDistribution) {
  constexpr int kBlocks = 50'000;
  constexpr int kValues = 4 * kBlocks;
  double sums[5] = {};
  for (int i = 0; i < kBlocks; ++i) {
    for (double value : NormalsFrom(Philox(1, 2, i))) {
      double power = 1;
      for (double& sum : sums) {
        sum += power;
        power *= value;
      }
    }
  }
  // Tolerances are five standard errors of the mean, the variance and the third and fourth moments.
  EXPECT_NEAR(sums[1] / kValues, 0, 5 * std::sqrt(1.0 / kValues));
  EXPECT_NEAR(sums[2] / kValues, 1, 5 * std::sqrt(2.0 / kValues));
  EXPECT_NEAR(sums[3] / kValues, 0, 5 * std::sqrt(15.0 / kValues));
  EXPECT_NEAR(sums[4] / kValues, 3, 5 * std::sqrt(96.0 / kValues));
}

TEST(NormalsTest, StayFiniteAtTheEnds) {
  for (uint32_t a : {0u, ~0u}) {
    for (uint32_t b : {0u, ~0u}) {
      for (double value : NormalsFrom({a, b, b, a})) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

}  // namespace
}  // namespace lodestar
