// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/speed_balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace lodestar::rounds {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;

TEST(CutBySpeedTest, GivesInProportion) {
  EXPECT_THAT(CutBySpeed(12, {1.0, 2.0, 3.0}), ElementsAre(2, 4, 6));
  EXPECT_THAT(CutBySpeed(10, {1.0, 1.0, 2.0}), ElementsAre(3, 2, 5));
}

TEST(CutBySpeedTest, EqualSpeedsGetEqualParts) {
  for (int64_t total = 3; total < 20; ++total) {
    EXPECT_EQ(CutBySpeed(total, {7.5, 7.5, 7.5}), CutEqually(total, 3)) << total;
    EXPECT_EQ(CutBySpeed(total, {0.0, 0.0, 0.0}), CutEqually(total, 3)) << total;
  }
}

TEST(CutBySpeedTest, AnUnknownSpeedIsTheMeanOfTheOthers) {
  EXPECT_THAT(CutBySpeed(12, {1.0, 0.0, 3.0}), ElementsAre(2, 4, 6));
}

TEST(CutBySpeedTest, NobodyIsLeftWithoutASample) {
  EXPECT_THAT(CutBySpeed(4, {1e-9, 1e9, 1e-9}), ElementsAre(1, 2, 1));
  EXPECT_THAT(CutBySpeed(3, {1.0, 1e12, 1.0}), ElementsAre(1, 1, 1));
}

TEST(CutBySpeedTest, EverySampleIsGivenOnce) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 10000; ++trial) {
    const int count = std::uniform_int_distribution<int>(1, 9)(random);
    const int64_t total = std::uniform_int_distribution<int64_t>(count, 1000)(random);
    std::vector<double> speeds(count);
    for (double& speed : speeds) {
      speed = trial % 5 == 0 ? 0.0 : std::exp(std::normal_distribution<double>(0.0, 3.0)(random));
    }
    const std::vector<int64_t> parts = CutBySpeed(total, speeds);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), total) << "trial " << trial;
    EXPECT_THAT(parts, Each(Ge(1))) << "trial " << trial;
  }
}

TEST(StepsBySpeedTest, AreThoseOfTheSameTime) {
  EXPECT_EQ(StepsBySpeed(50, 1.0, 1.0), 50);
  EXPECT_EQ(StepsBySpeed(50, 1.0, 2.0), 25);
  EXPECT_EQ(StepsBySpeed(50, 1.0, 6.0), 8);
  EXPECT_EQ(StepsBySpeed(50, 1.0, 1000.0), 1);
  EXPECT_EQ(StepsBySpeed(50, 0.0, 1000.0), 50);
}

}  // namespace
}  // namespace lodestar::rounds
