// SPDX-License-Identifier: Apache-2.0

#include "common/logging/log_tail.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::logging {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kNow = absl::FromUnixMillis(1'700'000'000'123);

std::vector<std::string> Texts(const LogExcerpt& excerpt) {
  std::vector<std::string> texts;
  for (const LogLineRecord& line : excerpt.lines) texts.push_back(line.text);
  return texts;
}

std::vector<std::string> Found(const std::vector<std::string>& lines, const LogQuery& query) {
  LogTail tail;
  for (const std::string& line : lines) tail.Add(LogLevel::kInfo, line, kNow);
  return Texts(tail.Read(query));
}

TEST(LogTailTest, WhatWasReadIsNotReadAgain) {
  LogTail tail;
  tail.Add(LogLevel::kInfo, "one", kNow);
  tail.Add(LogLevel::kError, "two\nlines", kNow + absl::Seconds(1));
  const LogExcerpt first = tail.Read({});
  EXPECT_THAT(first.lines, ElementsAre(LogLineRecord{1, kNow, LogLevel::kInfo, "one"},
                                       LogLineRecord{2, kNow + absl::Seconds(1), LogLevel::kError,
                                                     "two; lines"}));
  EXPECT_EQ(first.last_number, 2);
  EXPECT_THAT(tail.Read({.after = first.last_number}).lines, IsEmpty());
  tail.Add(LogLevel::kInfo, "three", kNow);
  EXPECT_THAT(Texts(tail.Read({.after = first.last_number})), ElementsAre("three"));
}

TEST(LogTailTest, TheOldestLinesGoAndAreCounted) {
  LogTail tail;
  for (size_t i = 0; i < LogTail::kMaxLines + 3; ++i) tail.Add(LogLevel::kInfo, "line", kNow);
  const LogExcerpt all = tail.Read({.most_lines = 10 * LogTail::kMaxLines});
  EXPECT_EQ(all.lines.size(), LogTail::kMaxLines);
  EXPECT_EQ(all.num_gone, 3);
  EXPECT_EQ(tail.Read({.after = 2}).num_gone, 1);
  EXPECT_EQ(tail.Read({.after = 3}).num_gone, 0);
}

TEST(LogTailTest, LongLinesTakeNoMoreThanTheirBound) {
  LogTail tail;
  const std::string line(10 * LogTail::kMaxLineBytes, 'x');
  for (size_t i = 0; i < LogTail::kMaxLines; ++i) tail.Add(LogLevel::kInfo, line, kNow);
  size_t num_bytes = 0;
  const LogExcerpt all =
      tail.Read({.most_lines = LogTail::kMaxLines, .most_bytes = 10 * LogTail::kMaxBytes});
  for (const LogLineRecord& kept : all.lines) num_bytes += kept.text.size();
  EXPECT_LE(num_bytes, LogTail::kMaxBytes);
  EXPECT_GT(num_bytes, LogTail::kMaxBytes - 2 * LogTail::kMaxLineBytes);
}

TEST(LogTailTest, AnAnswerIsBoundedAndWhoGoesOnMissesNothing) {
  LogTail tail;
  for (int i = 1; i <= 5; ++i) tail.Add(LogLevel::kInfo, absl::StrCat("line ", i), kNow);
  EXPECT_THAT(Texts(tail.Read({.most_lines = 2})), ElementsAre("line 4", "line 5"));
  EXPECT_THAT(Texts(tail.Read({.most_bytes = 13})), ElementsAre("line 4", "line 5"));
  LogQuery query = {.most_lines = 2, .oldest_first = true};
  std::vector<std::string> read;
  for (bool has_more = true; has_more;) {
    const LogExcerpt excerpt = tail.Read(query);
    for (const std::string& text : Texts(excerpt)) read.push_back(text);
    query.after = excerpt.last_number;
    has_more = excerpt.has_more;
  }
  EXPECT_THAT(read, ElementsAre("line 1", "line 2", "line 3", "line 4", "line 5"));
}

TEST(LogTailTest, LevelsAreFiltered) {
  LogTail tail;
  tail.Add(LogLevel::kDebug, "debug", kNow);
  tail.Add(LogLevel::kWarn, "warning", kNow);
  tail.Add(LogLevel::kError, "error", kNow);
  EXPECT_THAT(Texts(tail.Read({.least_level = LogLevel::kWarn})), ElementsAre("warning", "error"));
}

TEST(LogTailTest, WorkersAreFoundByNameAndByNumber) {
  const std::vector<std::string> lines = {"worker joined name=w1 worker=3",
                                          "call failed call=Join worker=3",
                                          "worker joined name=w10 worker=4",
                                          "round 7 waits for w1, w10",
                                          "all but w1.",
                                          "worker 3 of 4 is there"};
  EXPECT_THAT(Found(lines, {.worker = "w1"}), ElementsAre(lines[0], lines[3], lines[4]));
  EXPECT_THAT(Found(lines, {.worker = "w1", .worker_id = "3"}),
              ElementsAre(lines[0], lines[1], lines[3], lines[4]));
  EXPECT_THAT(Found(lines, {.worker = "3"}), ElementsAre(lines[0], lines[1]));
}

TEST(LogTailTest, RoundsAreFoundInKeysAndInWords) {
  const std::vector<std::string> lines = {"round opened round=7", "round 7 went on",
                                          "round 70 went on", "7 rounds"};
  EXPECT_THAT(Found(lines, {.round = 7}), ElementsAre(lines[0], lines[1]));
}

}  // namespace
}  // namespace lodestar::logging
