#include "server/coordinator/refusal_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);
const absl::Status kReason = absl::FailedPreconditionError("other data");

TEST(RefusalBookTest, KeepsTheLastReasonOfANameUntilItGetsIn) {
  RefusalBook book;
  EXPECT_TRUE(book.Note("a", "ipv4:1", absl::InvalidArgumentError("old release"), kNow));
  EXPECT_TRUE(book.Note("a", "ipv4:2", kReason, kNow + absl::Seconds(1)));
  EXPECT_FALSE(book.Note("a", "ipv4:2", kReason, kNow + absl::Seconds(2)));
  const auto shown = book.Snapshot(kNow + absl::Seconds(5));
  ASSERT_EQ(shown.size(), 1);
  EXPECT_EQ(shown[0].state, "refused");
  EXPECT_EQ(shown[0].reason, "other data");
  EXPECT_EQ(shown[0].peer, "ipv4:2");
  EXPECT_EQ(shown[0].ended_age, absl::Seconds(3));
  book.Forget("a");
  EXPECT_TRUE(book.Snapshot(kNow).empty());
}

TEST(RefusalBookTest, IsBoundedInNumberAndTime) {
  RefusalBook book;
  for (int i = 0; i < 100; ++i) book.Note(absl::StrCat(i), "", kReason, kNow);
  EXPECT_EQ(book.Snapshot(kNow).size(), RefusalBook::kMaxRefusals);
  EXPECT_EQ(book.Snapshot(kNow).back().name, "99");
  EXPECT_TRUE(book.Snapshot(kNow + RefusalBook::kShownFor + absl::Seconds(1)).empty());
}

TEST(RefusalBookTest, WhatComesFromOutsideIsEscapedAndCut) {
  RefusalBook book;
  book.Note(std::string(1000, 'x'), "", kReason, kNow);
  book.Note("a\n\x1b[31m", "", kReason, kNow);
  const auto shown = book.Snapshot(kNow);
  EXPECT_EQ(shown[0].name, std::string(64, 'x') + "...");
  EXPECT_EQ(shown[1].name, "a\\n\\x1b[31m");
}

}  // namespace
}  // namespace lodestar
