#include "common/logging.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/testing/status_matchers.h"

namespace lodestar {
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
  EXPECT_THAT(ParseLogLevel("warn"), IsOkAndHolds(LogLevel::kWarn));
  EXPECT_THAT(ParseLogLevel("loud"), StatusIs(absl::StatusCode::kInvalidArgument,
                                              ::testing::HasSubstr("--log_level=loud")));
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
}  // namespace lodestar
