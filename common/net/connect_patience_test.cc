// SPDX-License-Identifier: Apache-2.0

#include "common/net/connect_patience.h"

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const absl::Time kStart = absl::UnixEpoch();

ConnectPatience PatienceOf(absl::Duration timeout) {
  return ConnectPatience({.timeout = timeout, .servers = "h1:1"});
}

TEST(ConnectPatience, IsOverOnceNoServerHasAnsweredForTheTimeout) {
  ConnectPatience patience = PatienceOf(absl::Minutes(1));
  EXPECT_FALSE(patience.IsOver(kStart + absl::Hours(5)));  // no attempt has failed
  patience.OnUnanswered(kStart);
  patience.OnUnanswered(kStart + absl::Seconds(30));
  EXPECT_FALSE(patience.IsOver(kStart + absl::Seconds(59)));
  EXPECT_TRUE(patience.IsOver(kStart + absl::Seconds(60)));
  EXPECT_THAT(patience.Outcome("refused"), StatusIs(absl::StatusCode::kUnavailable,
                                                    AllOf(HasSubstr("h1:1"), HasSubstr("refused"),
                                                          HasSubstr("--connect_timeout"))));
}

TEST(ConnectPatience, BeginsAnewWithEachAnswer) {
  ConnectPatience patience = PatienceOf(absl::Minutes(1));
  patience.OnUnanswered(kStart);
  patience.OnAnswered();
  EXPECT_FALSE(patience.IsOver(kStart + absl::Hours(1)));
  patience.OnUnanswered(kStart + absl::Hours(1));
  EXPECT_FALSE(patience.IsOver(kStart + absl::Hours(1) + absl::Seconds(59)));
  EXPECT_TRUE(patience.IsOver(kStart + absl::Hours(1) + absl::Seconds(60)));
}

TEST(ConnectPatience, SaysWhatIsLeftAndForWhichAddress) {
  ConnectPatience patience = PatienceOf(absl::Minutes(1));
  EXPECT_THAT(patience.WhatIsLeft(kStart), AllOf(HasSubstr("h1:1"), HasSubstr(" 1m ")));
  patience.OnUnanswered(kStart);
  EXPECT_THAT(patience.WhatIsLeft(kStart + absl::Seconds(20)), HasSubstr(" 40s "));
  EXPECT_THAT(patience.WhatIsLeft(kStart + absl::Hours(1)), HasSubstr(" 0s "));
}

TEST(ConnectPatience, ZeroMeansForEver) {
  ASSERT_OK_AND_ASSIGN(const absl::Duration timeout,
                       ConnectPatience::TimeoutOf("--connect_timeout", absl::ZeroDuration()));
  ConnectPatience patience = PatienceOf(timeout);
  patience.OnUnanswered(kStart);
  EXPECT_FALSE(patience.IsOver(kStart + absl::Hours(24 * 365 * 50)));
  EXPECT_THAT(patience.WhatIsLeft(kStart), HasSubstr("without a time limit"));
}

TEST(ConnectPatience, RefusesTimesThatAreNone) {
  for (const absl::Duration given :
       {absl::Milliseconds(999), -absl::Seconds(5), absl::InfiniteDuration()}) {
    EXPECT_THAT(ConnectPatience::TimeoutOf("--connect_timeout", given),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--connect_timeout=")));
  }
}

}  // namespace
}  // namespace lodestar::net
