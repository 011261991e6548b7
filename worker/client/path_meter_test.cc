// SPDX-License-Identifier: Apache-2.0

#include "worker/client/path_meter.h"

#include "gtest/gtest.h"

namespace lodestar::client {
namespace {

constexpr uint64_t kMegabyte = 1'000'000;

TEST(PathMeterTest, KnowsNothingBeforeSomethingHasMoved) {
  PathMeter meter;
  EXPECT_EQ(meter.facts(), messages::PathFacts());
  meter.OnSent(PathMeter::kLeastBytes - 1, absl::Seconds(1), absl::Milliseconds(50));
  meter.OnReceived(PathMeter::kLeastBytes - 1, absl::Seconds(1));
  meter.OnReceived(kMegabyte, absl::ZeroDuration());
  EXPECT_EQ(meter.facts(), messages::PathFacts({.round_trip = absl::Milliseconds(50)}));
}

TEST(PathMeterTest, TheWayOfTheLastAcknowledgementIsNotSending) {
  PathMeter meter;
  meter.OnSent(kMegabyte, absl::Milliseconds(130), absl::Milliseconds(50));
  meter.OnReceived(2 * kMegabyte, absl::Milliseconds(80));
  EXPECT_DOUBLE_EQ(meter.facts().up_bytes_per_second, 12.5e6);
  EXPECT_DOUBLE_EQ(meter.facts().down_bytes_per_second, 25e6);
  EXPECT_EQ(meter.facts().round_trip, absl::Milliseconds(50));
}

TEST(PathMeterTest, TakesTheFastestOfTheLastTransfers) {
  PathMeter meter;
  meter.OnReceived(kMegabyte, absl::Milliseconds(100));
  meter.OnReceived(kMegabyte, absl::Milliseconds(400));
  EXPECT_DOUBLE_EQ(meter.facts().down_bytes_per_second, 10e6);
  for (int i = 0; i < 7; ++i) meter.OnReceived(kMegabyte, absl::Milliseconds(400));
  EXPECT_DOUBLE_EQ(meter.facts().down_bytes_per_second, 2.5e6) << "the path has become slower";
}

}  // namespace
}  // namespace lodestar::client
