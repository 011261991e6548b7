// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/time_text.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

TEST(DurationTextTest, LeavesOutUnitsThatAreNeedlesslySmall) {
  EXPECT_EQ(DurationText(absl::Milliseconds(2570)), "2.5s");
  EXPECT_EQ(DurationText(absl::Milliseconds(90'900)), "1m30s");
  EXPECT_EQ(DurationText(absl::Hours(1) + absl::Seconds(31)), "1h");
  EXPECT_EQ(DurationText(absl::Hours(25) + absl::Minutes(2) + absl::Seconds(3)), "25h2m");
  EXPECT_EQ(DurationText(absl::Minutes(59) + absl::Seconds(59)), "59m59s");
}

TEST(DurationTextTest, AlwaysHasAUnit) {
  for (const absl::Duration none :
       {absl::ZeroDuration(), absl::Milliseconds(99), -absl::Hours(2)}) {
    EXPECT_EQ(DurationText(none), "0s");
  }
}

TEST(UtcTextTest, NamesItsZone) {
  EXPECT_EQ(UtcText(absl::UnixEpoch() + absl::Milliseconds(61'900)), "1970-01-01 00:01:01 UTC");
}

}  // namespace
}  // namespace lodestar
