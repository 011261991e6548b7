// SPDX-License-Identifier: Apache-2.0

#include "worker/process_age.h"

#include <string>

#include "gtest/gtest.h"

namespace lodestar::worker {
namespace {

// A line as Linux writes it, for a program whose name has brackets and spaces.
const char kStat[] =
    "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 100 0 0 0 7 3 0 0 20 0 5 0 360050 1000 200 1";

TEST(ProcessAgeTest, IsTheTimeSinceTheStartThatTheSystemTells) {
  EXPECT_EQ(ProcessAgeFrom(kStat, absl::Seconds(3602), 100), absl::Milliseconds(1500));
}

TEST(ProcessAgeTest, IsZeroWhereNothingCanBeTold) {
  EXPECT_EQ(ProcessAgeFrom(kStat, absl::Seconds(3600), 100), absl::ZeroDuration());
  EXPECT_EQ(ProcessAgeFrom("", absl::Seconds(3602), 100), absl::ZeroDuration());
  EXPECT_EQ(ProcessAgeFrom("1 (a) S 1 2", absl::Seconds(3602), 100), absl::ZeroDuration());
  std::string damaged = kStat;
  damaged.replace(damaged.find("360050"), 6, "x");
  EXPECT_EQ(ProcessAgeFrom(damaged, absl::Seconds(3602), 100), absl::ZeroDuration());
  EXPECT_EQ(ProcessAgeFrom(kStat, absl::Seconds(3602), 0), absl::ZeroDuration());
}

TEST(ProcessAgeTest, OfThisProcessGrows) {
  const absl::Duration first = ProcessAge();
  EXPECT_GE(first, absl::ZeroDuration());
  EXPECT_LT(first, absl::Hours(1));
  const absl::Duration second = ProcessAge();
  EXPECT_GE(second, first);
}

}  // namespace
}  // namespace lodestar::worker
