// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/membership/recent_refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace lodestar::membership {
namespace {

constexpr absl::Duration kShownFor = absl::Hours(1);
const absl::Time kNow = absl::FromUnixSeconds(1000);
const absl::Status kReason = absl::FailedPreconditionError("other data");

TEST(RecentRefusalsTest, KeepsTheLastReasonOfANameUntilItGetsIn) {
  RecentRefusals refusals(kShownFor);
  EXPECT_TRUE(refusals.Note("a", "ipv4:1", absl::InvalidArgumentError("old release"), kNow));
  EXPECT_TRUE(refusals.Note("a", "ipv4:2", kReason, kNow + absl::Seconds(1)));
  EXPECT_FALSE(refusals.Note("a", "ipv4:2", kReason, kNow + absl::Seconds(2)));
  const auto shown = refusals.Shown(kNow + absl::Seconds(5));
  ASSERT_EQ(shown.size(), 1);
  EXPECT_EQ(shown[0].reason, "other data");
  EXPECT_EQ(shown[0].peer, "ipv4:2");
  EXPECT_EQ(shown[0].at, kNow + absl::Seconds(2));
  refusals.Forget("a");
  EXPECT_TRUE(refusals.Shown(kNow).empty());
}

TEST(RecentRefusalsTest, IsBoundedInNumberAndTime) {
  RecentRefusals refusals(kShownFor);
  for (int i = 0; i < 100; ++i) refusals.Note(absl::StrCat(i), "", kReason, kNow);
  EXPECT_EQ(refusals.Shown(kNow).size(), RecentRefusals::kMaxRefusals);
  EXPECT_EQ(refusals.Shown(kNow).back().name, "99");
  EXPECT_TRUE(refusals.Shown(kNow + kShownFor + absl::Seconds(1)).empty());
}

TEST(RecentRefusalsTest, WhatComesFromOutsideIsEscapedAndCut) {
  RecentRefusals refusals(kShownFor);
  refusals.Note(std::string(1000, 'x'), "", kReason, kNow);
  refusals.Note("a\n\x1b[31m", "", kReason, kNow);
  const auto shown = refusals.Shown(kNow);
  EXPECT_EQ(shown[0].name, std::string(64, 'x') + "...");
  EXPECT_EQ(shown[1].name, "a\\n\\x1b[31m");
}

}  // namespace
}  // namespace lodestar::membership
