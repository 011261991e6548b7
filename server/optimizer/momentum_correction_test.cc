// SPDX-License-Identifier: Apache-2.0

#include "server/optimizer/momentum_correction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/params/layout.h"

namespace lodestar::optimizer {
namespace {

using Factors = MomentumCorrection::Factors;

// The corrected vector in two dimensions. The momentum lies along the first axis.
struct Corrected {
  double along = 0.0;
  double across = 0.0;
};

Corrected Correct(const MomentumCorrection::Config& config, double length, double cosine,
                  double momentum_length) {
  const Factors factors = MomentumCorrection(config).FactorsOf(length, momentum_length,
                                                               length * momentum_length * cosine);
  return {factors.keep * length * cosine + factors.add * momentum_length,
          factors.keep * length * std::sqrt(1.0 - cosine * cosine)};
}

TEST(MomentumCorrectionTest, WhatGoesWithTheMomentumStaysAsItIs) {
  const MomentumCorrection correction({.keep_cosine = 0.1});
  for (const double cosine : {0.1001, 0.5, 1.0}) {
    EXPECT_EQ(correction.FactorsOf(2.0, 3.0, 6.0 * cosine), Factors()) << cosine;
  }
}

TEST(MomentumCorrectionTest, OfWhatOpposesItThePartAlongItShrinks) {
  const MomentumCorrection::Config config = {.momentum = 0.5, .shrink = 1.0, .kappa = 1.0};
  for (const double cosine : {-0.01, -0.3, -0.8}) {
    // With lengths 2 and 0.5 * 4 the confidence is a half.
    const Corrected corrected = Correct(config, 2.0, cosine, 4.0);
    EXPECT_NEAR(corrected.across, 2.0 * std::sqrt(1.0 - cosine * cosine), 1e-12) << cosine;
    EXPECT_NEAR(corrected.along, 2.0 * cosine * (1.0 + cosine * 0.5), 1e-12) << cosine;
  }
  // If the momentum is short, the confidence is almost 1. Then almost all of a contribution that
  // opposes it is removed.
  const Corrected opposite = Correct(config, 1.0, -1.0, 0.01);
  EXPECT_NEAR(opposite.along, -1.0 + 1.0 / 1.005, 1e-12);
}

TEST(MomentumCorrectionTest, ShrinkingHasALimit) {
  const MomentumCorrection::Config config = {.momentum = 0.5, .shrink = 10.0, .max_shrink = 0.25};
  EXPECT_NEAR(Correct(config, 2.0, -0.8, 4.0).along, -1.6 * 0.75, 1e-12);
}

TEST(MomentumCorrectionTest, WhatHardlyGoesWithItIsTurnedAndStaysAsLong) {
  const MomentumCorrection::Config config = {
      .momentum = 0.5, .keep_cosine = 0.2, .turn = 0.8, .kappa = 1.0};
  for (const double cosine : {0.0, 0.1, 0.19}) {
    const Corrected corrected = Correct(config, 2.0, cosine, 4.0);
    EXPECT_NEAR(std::hypot(corrected.along, corrected.across), 2.0, 1e-12) << cosine;
    const double turn = 0.8 * (1.0 - cosine) * 0.5;
    EXPECT_NEAR(corrected.along / corrected.across,
                ((1.0 - turn) * cosine + turn) / ((1.0 - turn) * std::sqrt(1.0 - cosine * cosine)),
                1e-12)
        << cosine;
    EXPECT_GT(corrected.along, 2.0 * cosine);
  }
}

TEST(MomentumCorrectionTest, WithoutDirectionsNothingIsCorrected) {
  const MomentumCorrection correction({});
  EXPECT_EQ(correction.FactorsOf(0.0, 1.0, 0.0), Factors());
  EXPECT_EQ(correction.FactorsOf(1.0, 0.0, 0.0), Factors());
  EXPECT_EQ(correction.FactorsOf(1e-42, 1.0, -1e-42), Factors());
  EXPECT_EQ(correction.FactorsOf(1.0, 1.0, std::nan("")), Factors());
  // 0.1 * 0.099 is less than least_momentum * 10, so nothing is corrected. 0.1 * 0.101 is more.
  EXPECT_EQ(correction.FactorsOf(10.0, 0.099, -0.99), Factors());
  EXPECT_NE(correction.FactorsOf(10.0, 0.101, -1.01), Factors());
}

TEST(MomentumCorrectionTest, EachPartHasFactorsOfItsOwn) {
  const MomentumCorrection correction({.momentum = 0.5});
  const std::vector<float> contribution = {1, 2, 9, -3, 0};
  const std::vector<float> momentum = {4, 2, 9, 2, 1};
  const std::vector<params::ElementRange> parts = {{0, 2}, {3, 5}};
  for (const float scale : {1.0f, 0.5f, -2.0f}) {
    const std::vector<Factors> factors =
        correction.FactorsOf(parts, contribution.data(), scale, momentum.data());
    ASSERT_EQ(factors.size(), 2);
    const double s = scale;
    EXPECT_EQ(factors[0],
              correction.FactorsOf(std::abs(s) * std::sqrt(5.0), std::sqrt(20.0), s * 8.0));
    EXPECT_EQ(factors[1], correction.FactorsOf(std::abs(s) * 3.0, std::sqrt(5.0), s * -6.0));
    EXPECT_EQ(factors[0] == Factors(), scale > 0.0f);
    EXPECT_EQ(factors[1] == Factors(), scale < 0.0f);
  }
}

}  // namespace
}  // namespace lodestar::optimizer
