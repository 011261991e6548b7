// SPDX-License-Identifier: Apache-2.0

#include "common/net/round_trip_time.h"

#include <gtest/gtest.h>

namespace lodestar::net {
namespace {

constexpr absl::Duration kLeast = absl::Seconds(3);
constexpr absl::Duration kMost = absl::Seconds(10);

TEST(RoundTripTimeTest, AGoodPathIsWaitedForAsLongAsIsUsual) {
  RoundTripTime path;
  EXPECT_EQ(path.Patience(kLeast, kMost), kLeast);
  for (int i = 0; i < 10; ++i) path.OnAnswered(absl::Milliseconds(5));
  EXPECT_EQ(path.Patience(kLeast, kMost), kLeast);
}

// RFC 6298 after the first answer: SRTT = R, RTTVAR = R / 2. After each further answer: RTTVAR =
// 3/4 RTTVAR + 1/4 |SRTT - R|, SRTT = 7/8 SRTT + 1/8 R. RTO = SRTT + 4 RTTVAR.
TEST(RoundTripTimeTest, ASlowPathIsWaitedForByWhatWasMeasured) {
  RoundTripTime path;
  path.OnAnswered(absl::Seconds(2));
  EXPECT_EQ(path.Patience(kLeast, kMost), absl::Seconds(6));
  path.OnAnswered(absl::Seconds(1));
  EXPECT_EQ(path.Patience(kLeast, kMost), absl::Seconds(1.875 + 4 * 1.0));
  EXPECT_EQ(path.Patience(kLeast, absl::Seconds(4)), absl::Seconds(4));
  for (int i = 0; i < 100; ++i) path.OnAnswered(absl::Seconds(4));
  EXPECT_LT(path.Patience(kLeast, kMost), absl::Seconds(4.01)) << "it no longer varies";
  EXPECT_GT(path.Patience(kLeast, kMost), absl::Seconds(3.99));
}

TEST(RoundTripTimeTest, WhereNoAnswerComesInTimeItIsWaitedForLonger) {
  RoundTripTime path;
  path.OnUnanswered(kLeast);
  path.OnUnanswered(kLeast);
  EXPECT_EQ(path.Patience(kLeast, kMost), kLeast) << "lost ones say nothing of the path";
  path.OnUnanswered(kLeast);
  EXPECT_EQ(path.Patience(kLeast, kMost), absl::Seconds(6));
  path.OnUnanswered(absl::Seconds(6));
  EXPECT_EQ(path.Patience(kLeast, kMost), kMost);
  path.OnAnswered(absl::Milliseconds(50));
  EXPECT_EQ(path.Patience(kLeast, kMost), kLeast);
}

}  // namespace
}  // namespace lodestar::net
