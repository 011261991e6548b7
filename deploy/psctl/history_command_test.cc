// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/history_command.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/runtime/text_table.h"
#include "common/testing/status_matchers.h"
#include "common/testing/unprivileged_thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

history::RunHistory OfRounds(int64_t rounds) {
  history::RunHistory history;
  for (int64_t round = 0; round < rounds; ++round) {
    history.trained.push_back(
        {Round(round), Round(round), 10 * (round + 1), 60.0 * static_cast<double>(round), 2.5, 1});
  }
  return history;
}

TEST(HistoryCommandTest, ALongRunIsShownInFewLinesWithItsLastRound) {
  const std::string text = HistoryText(OfRounds(1000), /*max_rows=*/4, kUnlimitedColumns);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_THAT(lines[1], HasSubstr(" 250 "));
  EXPECT_THAT(lines[4], HasSubstr("1000"));
  EXPECT_THAT(lines[4], HasSubstr("16h39m"));
}

TEST(HistoryCommandTest, AnEvaluationIsInOneLine) {
  history::RunHistory history = OfRounds(4);
  history.heldout = {{Round(2), 20, 60.0, 3.5}};
  const std::string text = HistoryText(history, /*max_rows=*/20, kUnlimitedColumns);
  EXPECT_THAT(std::vector<std::string>(absl::StrSplit(text, "3.5000")), SizeIs(2)) << text;
  history.loss_unit = job::LossUnit::kBitsPerByte;
  const std::string in_bits = HistoryText(history, /*max_rows=*/20, kUnlimitedColumns);
  EXPECT_THAT(in_bits, HasSubstr("bits/byte"));
  EXPECT_THAT(in_bits, HasSubstr("5.0494"));
}

TEST(HistoryCommandTest, TheLastEventsFollow) {
  history::RunHistory history;
  for (int i = 0; i < 5; ++i) {
    history.events.push_back({absl::FromUnixSeconds(i), i == 4, absl::StrCat("event ", i)});
  }
  const std::string text = HistoryText(history, /*max_rows=*/2, kUnlimitedColumns);
  EXPECT_THAT(text, HasSubstr("no round is complete yet\n"));
  EXPECT_THAT(text, Not(HasSubstr("event 2")));
  EXPECT_THAT(text, HasSubstr("1970-01-01 00:00:03 UTC  event 3\n"));
  EXPECT_THAT(text, HasSubstr("1970-01-01 00:00:04 UTC  ALARM  event 4\n"));
}

TEST(HistoryCommandTest, AFolderHasItUnderItsName) {
  const std::string folder = ::testing::TempDir();
  EXPECT_THAT(ReadKeptHistory(folder),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("history.sqlite")));
  ASSERT_OK(
      history::WriteHistory(absl::StrCat(folder, "/", history::kHistoryFileName), OfRounds(3)));
  EXPECT_THAT(ReadKeptHistory(folder), IsOkAndHolds(OfRounds(3)));
}

TEST(HistoryCommandTest, WhatThisUserMayNotReadIsNotTakenForNothing) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/closed");
  const std::string file = absl::StrCat(folder, "/", history::kHistoryFileName);
  std::filesystem::create_directories(folder);
  ASSERT_OK(history::WriteHistory(file, OfRounds(1)));
  const UnprivilegedThread unprivileged;
  using std::filesystem::perms;
  for (const std::string& closed : {folder, file}) {
    std::filesystem::permissions(closed, perms::none);
    EXPECT_THAT(ReadKeptHistory(folder),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         AllOf(HasSubstr(file), HasSubstr("Permission denied"))))
        << closed;
    std::filesystem::permissions(closed, perms::owner_all);
  }
  EXPECT_OK(ReadKeptHistory(folder).status());
}

}  // namespace
}  // namespace lodestar::psctl
