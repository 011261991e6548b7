// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/rate_meter.h"

#include <gtest/gtest.h>

namespace lodestar::stragglers {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(RateMeterTest, ConstantFlowHasItsRateFromTheSecondAmountOn) {
  RateMeter meter;
  absl::Time now = kStart;
  meter.Add(5.0, now);
  EXPECT_EQ(meter.PerSecond(now), 0.0);
  for (int i = 0; i < 100; ++i) {
    now += absl::Milliseconds(500);
    meter.Add(5.0, now);
    EXPECT_NEAR(meter.PerSecond(now), 10.0, 1e-9);
  }
}

TEST(RateMeterTest, FollowsAChangeAndFallsInAPause) {
  RateMeter meter;
  absl::Time now = kStart;
  for (int i = 0; i < 100; ++i) meter.Add(5.0, now += absl::Seconds(1));
  for (int i = 0; i < 60; ++i) meter.Add(50.0, now += absl::Seconds(1));
  EXPECT_NEAR(meter.PerSecond(now), 50.0, 1.5);
  EXPECT_LT(meter.PerSecond(now + absl::Minutes(10)), 2.0);
}

TEST(RateMeterTest, ASilentFlowIsNotTakenForAFastOne) {
  RateMeter meter;
  absl::Time now = kStart;
  // There are 100 rounds per second for a minute, and then none.
  for (int i = 0; i < 6000; ++i) meter.Add(10.0, now += absl::Milliseconds(10));
  EXPECT_NEAR(meter.PerSecond(now + absl::Milliseconds(15)), 1000.0, 1.0);
  EXPECT_LT(meter.PerSecond(now + absl::Seconds(10)), 500.0);
  EXPECT_LT(meter.PerSecond(now + absl::Seconds(14)), 400.0);
  EXPECT_EQ(meter.PerSecond(now + absl::Seconds(30)), 0.0);
}

TEST(RateMeterTest, AStandstillIsForgotten) {
  RateMeter meter;
  absl::Time now = kStart;
  for (int i = 0; i < 100; ++i) meter.Add(5.0, now += absl::Seconds(1));
  now += absl::Hours(1);
  EXPECT_EQ(meter.PerSecond(now), 0.0);
  meter.Add(5.0, now);
  for (int i = 0; i < 60; ++i) meter.Add(5.0, now += absl::Seconds(1));
  EXPECT_NEAR(meter.PerSecond(now), 5.0, 0.2);
}

TEST(RateMeterTest, LongRoundsAreNoStandstill) {
  RateMeter meter;
  absl::Time now = kStart;
  for (int i = 0; i < 5; ++i) meter.Add(6.0, now += absl::Minutes(10));
  EXPECT_NEAR(meter.PerSecond(now + absl::Minutes(15)), 0.01, 1e-9);
}

}  // namespace
}  // namespace lodestar::stragglers
