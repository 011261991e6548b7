// SPDX-License-Identifier: Apache-2.0

#include "common/logging/logging.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/testing/status_matchers.h"

namespace lodestar::logging {
namespace {

using ::testing::ElementsAre;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

TEST(LoggingTest, WritesTimeZoneLevelNameAndLineInPlainText) {
  InitLogging("ps_server 100%", LogLevel::kInfo);
  CaptureStderr();
  LogInfo("round={} worker={} {}", Round(3), WorkerId(7), absl::string_view("late"));
  LogError("{}", absl::NotFoundError("no file"));
  EXPECT_THAT(GetCapturedStderr(),
              ::testing::MatchesRegex(
                  "[0-9-]+ [0-9:.]+[-+][0-9]+:[0-9]+ info ps_server 100%: round=3 worker=7 late\n"
                  "[0-9-]+ [0-9:.]+[-+][0-9]+:[0-9]+ error ps_server 100%: NOT_FOUND: no file\n"));
}

TEST(LoggingTest, WhatIsWrittenIsKeptForWhoAsksLater) {
  LogTail tail;
  InitLogging("ps_server", LogLevel::kInfo);
  CaptureStderr();
  KeepLog(&tail);
  LogDebug("not written");
  LogWarn("round={} is late", Round(3));
  KeepLog(nullptr);
  LogInfo("kept by nobody");
  const std::string written = GetCapturedStderr();
  const std::vector<LogLineRecord> kept = tail.Read({}).lines;
  ASSERT_EQ(kept.size(), 1);
  EXPECT_EQ(kept[0].text, "round=3 is late");
  EXPECT_EQ(kept[0].level, LogLevel::kWarn);
  const std::string line = LogText(kept[0].level, "ps_server", kept[0].text, kept[0].time);
  EXPECT_THAT(line, ::testing::EndsWith(" warning ps_server: round=3 is late"));
  EXPECT_EQ(line.substr(0, 19), written.substr(0, 19)) << "the times of both, to the second";
}

TEST(LoggingTest, LinesOfJsonHaveTheirIdsAsFields) {
  const absl::Time now = absl::FromUnixMillis(1'700'000'000'125);
  EXPECT_EQ(LogJson(LogLevel::kInfo, "ps_server",
                    "worker joined name=a.1 worker=3 view=4 data=shared --round=7", now),
            R"({"time":"2023-11-14T22:13:20.125Z","level":"info","process":"ps_server",)"
            R"("message":"worker joined name=a.1 worker=3 view=4 data=shared --round=7",)"
            R"("name":"a.1","worker":3,"view":4})");
  EXPECT_EQ(LogJson(LogLevel::kError, "w", "bad \"\xff\"\n round= round=1 round=2", now),
            R"({"time":"2023-11-14T22:13:20.125Z","level":"error","process":"w",)"
            "\"message\":\"bad \\\"\xEF\xBF\xBD\\\"\\n round= round=1 round=2\",\"round\":1}")
      << "one line, valid whatever comes";
  EXPECT_EQ(LogJson(LogLevel::kInfo, "w", "incarnation=1796423311022538919 shard=0/2 name=7", now),
            R"({"time":"2023-11-14T22:13:20.125Z","level":"info","process":"w",)"
            R"("message":"incarnation=1796423311022538919 shard=0/2 name=7",)"
            R"("incarnation":"1796423311022538919","shard":0,"name":"7"})")
      << "a reader that has numbers as doubles loses nothing";
  InitLogging("test", LogLevel::kInfo, LogFormat::kJson);
  CaptureStderr();
  LogWarn("round={}", Round(3));
  EXPECT_THAT(GetCapturedStderr(),
              ::testing::MatchesRegex(R"(\{"time":"[^"]*Z","level":"warning","process":"test",)"
                                      "\"message\":\"round=3\",\"round\":3\\}\n"));
  InitLogging("test", LogLevel::kInfo);
}

TEST(LoggingTest, LeavesOutTheSecretsOfJoinStrings) {
  LogTail tail;
  InitLogging("test", LogLevel::kInfo);
  CaptureStderr();
  KeepLog(&tail);
  LogError("no file lodestar://h:1/L1{}.0b.5ec2e7", std::string(64, 'a'));
  KeepLog(nullptr);
  EXPECT_THAT(GetCapturedStderr(), ::testing::EndsWith("no file lodestar://h:1/...\n"));
  EXPECT_EQ(tail.Read({}).lines[0].text, "no file lodestar://h:1/...");
}

TEST(LoggingTest, ParsesFormats) {
  EXPECT_THAT(ParseLogFormat("json"), IsOkAndHolds(LogFormat::kJson));
  EXPECT_THAT(ParseLogFormat("text"), IsOkAndHolds(LogFormat::kText));
  EXPECT_THAT(ParseLogFormat("xml"), StatusIs(absl::StatusCode::kInvalidArgument,
                                              ::testing::HasSubstr("--log_format=xml")));
}

TEST(LoggingTest, DropsLinesBelowTheLevel) {
  InitLogging("test", LogLevel::kWarn);
  EXPECT_FALSE(IsLogged(LogLevel::kInfo));
  CaptureStderr();
  LogDebug("a");
  LogInfo("b");
  EXPECT_EQ(GetCapturedStderr(), "");
  CaptureStderr();
  LogWarn("c");
  EXPECT_THAT(GetCapturedStderr(), ::testing::HasSubstr("warning test: c"));
}

TEST(LoggingTest, ParsesLevels) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError}) {
    EXPECT_THAT(ParseLogLevel(LogLevelName(level)), IsOkAndHolds(level)) << LogLevelName(level);
  }
  EXPECT_THAT(ParseLogLevel("warn"), IsOkAndHolds(LogLevel::kWarn));
  EXPECT_THAT(ParseLogLevel("loud"), StatusIs(absl::StatusCode::kInvalidArgument,
                                              ::testing::HasSubstr("--log_level=loud")));
}

TEST(LoggingTest, RepeatedLineIsWrittenOnceAndItsCountAtTheEnd) {
  InitLogging("test", LogLevel::kInfo);
  CaptureStderr();
  for (int i = 0; i < 100; ++i) LogInfo("nobody answers");
  FlushLog();
  EXPECT_THAT(
      GetCapturedStderr(),
      ::testing::MatchesRegex(".* info test: nobody answers\n"
                              ".* info test: nobody answers .99 more of these in the last 0.\n"));
}

class RepeatFilterTest : public ::testing::Test {
 protected:
  // Returns the lines written when `text` is logged `seconds` after the start.
  std::vector<std::string> At(int seconds, absl::string_view text) {
    return Texts(filter_.Admit(LogLevel::kInfo, text, start_ + absl::Seconds(seconds)));
  }
  std::vector<std::string> FlushAt(int seconds) {
    return Texts(filter_.Flush(start_ + absl::Seconds(seconds)));
  }

 private:
  static std::vector<std::string> Texts(const std::vector<RepeatFilter::Line>& lines) {
    std::vector<std::string> texts;
    for (const RepeatFilter::Line& line : lines) texts.push_back(line.text);
    return texts;
  }

  const absl::Time start_ = absl::FromUnixSeconds(1'700'000'000);
  RepeatFilter filter_;
};

TEST_F(RepeatFilterTest, LineThatGoesOnIsToldAgainWithItsCountEverMoreSeldom) {
  std::vector<std::string> written;
  for (int second = 0; second <= 70; ++second) {
    for (std::string& line : At(second, "away")) written.push_back(std::move(line));
  }
  EXPECT_THAT(written, ElementsAre("away", "away (9 more of these in the last 10s)",
                                   "away (19 more of these in the last 20s)",
                                   "away (39 more of these in the last 40s)"));
}

TEST_F(RepeatFilterTest, LinesThatTakeTurnsAreCollapsedToo) {
  std::vector<std::string> written;
  for (int second = 0; second < 9; ++second) {
    for (std::string& line : At(second, second % 2 == 0 ? "a" : "b")) {
      written.push_back(std::move(line));
    }
  }
  EXPECT_THAT(written, ElementsAre("a", "b", "a", "b", "a", "b"));
  EXPECT_THAT(At(11, "c"), ElementsAre("a (2 more of these in the last 11s)",
                                       "b (1 more of these in the last 10s)", "c"));
}

TEST_F(RepeatFilterTest, StateThatComesBackIsToldAgain) {
  EXPECT_THAT(At(0, "waits"), ElementsAre("waits"));
  EXPECT_THAT(At(1, "goes on"), ElementsAre("goes on"));
  EXPECT_THAT(At(2, "waits"), ElementsAre("waits"));
  EXPECT_THAT(At(3, "waits"), ElementsAre());
  EXPECT_THAT(At(60, "waits"), ElementsAre("waits (1 more of these in the last 1m)"));
}

TEST_F(RepeatFilterTest, LineOfAnotherLevelIsAnotherLine) {
  RepeatFilter filter;
  const absl::Time now = absl::FromUnixSeconds(1);
  EXPECT_THAT(filter.Admit(LogLevel::kInfo, "same", now),
              ElementsAre(RepeatFilter::Line{LogLevel::kInfo, "same"}));
  EXPECT_THAT(filter.Admit(LogLevel::kError, "same", now),
              ElementsAre(RepeatFilter::Line{LogLevel::kError, "same"}));
}

TEST_F(RepeatFilterTest, MemoryIsBoundedAndNoCountIsLost) {
  EXPECT_THAT(At(0, "first"), ElementsAre("first"));
  EXPECT_THAT(At(0, "first"), ElementsAre());
  for (size_t i = 1; i < RepeatFilter::kMaxLines; ++i) At(0, std::to_string(i));
  EXPECT_THAT(At(0, "one too many"),
              ElementsAre("first (1 more of these in the last 0)", "one too many"));
  EXPECT_THAT(At(0, "one too many"), ElementsAre());
  EXPECT_THAT(FlushAt(3), ElementsAre("one too many (1 more of these in the last 3s)"));
  EXPECT_THAT(FlushAt(4), ElementsAre());
}

TEST(ChangeLoggerTest, LogsAStateOnlyWhenItChanges) {
  std::vector<std::string> lines;
  ChangeLogger logger([&](LogLevel, absl::string_view line) { lines.emplace_back(line); });
  EXPECT_TRUE(logger.Log(LogLevel::kInfo, "round", "waits for worker 2"));
  EXPECT_FALSE(logger.Log(LogLevel::kInfo, "round", "waits for worker 2"));
  EXPECT_TRUE(logger.Log(LogLevel::kInfo, "disk", "waits for worker 2"));
  EXPECT_TRUE(logger.Log(LogLevel::kInfo, "round", "open"));
  EXPECT_TRUE(logger.Log(LogLevel::kInfo, "round", "waits for worker 2"));
  logger.Forget("round");
  EXPECT_TRUE(logger.Log(LogLevel::kInfo, "round", "waits for worker 2"));
  EXPECT_THAT(lines, ElementsAre("waits for worker 2", "waits for worker 2", "open",
                                 "waits for worker 2", "waits for worker 2"));
}

}  // namespace
}  // namespace lodestar::logging
