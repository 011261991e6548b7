// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/log_feed.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::HasSubstr;

// Fixture with a fake server that has a log. The server's answers after the first one have one line
// each.
class LogFeedTest : public testing::Test {
 protected:
  void Restart(const std::string& id) {
    log_ = std::make_unique<logging::LogTail>(id, "ps_server");
  }
  void Log(absl::string_view text) { log_->Add(logging::LogLevel::kInfo, text, absl::UnixEpoch()); }

  LogFeed Feed(const logging::LogQuery& query = {}, bool as_json = false) {
    return LogFeed(
        [this](const logging::LogQuery& asked,
               const std::string& log_id) -> absl::StatusOr<wire::LogPage> {
          if (!answer_.ok()) return answer_;
          absl::StatusOr<logging::LogQuery> query =
              wire::FromProto(wire::ToProto(asked, log_id), log_->id());
          if (query->oldest_first) query->most_lines = 1;
          return wire::FromProto(
              wire::ToProto(wire::LogPage{log_->id(), log_->process(), log_->Read(*query)}));
        },
        query, as_json, &clock_);
  }
  // Returns the texts of the lines, without time and level.
  static std::string Messages(const absl::StatusOr<std::string>& text) {
    if (!text.ok()) return std::string(text.status().message());
    std::string messages;
    for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
      absl::StrAppend(&messages, line.substr(line.find(": ") + 2), ";");
    }
    return messages;
  }

  std::unique_ptr<logging::LogTail> log_ = std::make_unique<logging::LogTail>("first", "ps_server");
  absl::Status answer_;
  SimulatedClock clock_;
};

TEST_F(LogFeedTest, BeginsWithTheNewestAndGoesOnWithAll) {
  for (int i = 1; i <= 3; ++i) Log(absl::StrCat("line ", i));
  LogFeed feed = Feed({.most_lines = 2});
  EXPECT_EQ(Messages(feed.Next()), "line 2;line 3;");
  EXPECT_EQ(Messages(feed.Next()), "");
  for (int i = 4; i <= 7; ++i) Log(absl::StrCat("line ", i));
  EXPECT_EQ(Messages(feed.Next()), "line 4;line 5;line 6;line 7;");
}

TEST_F(LogFeedTest, AServerThatWasStartedAgainIsReadFromItsBegin) {
  Log("before");
  Log("before");
  LogFeed feed = Feed();
  EXPECT_EQ(Messages(feed.Next()), "before;before;");
  answer_ = absl::UnavailableError("away");
  EXPECT_EQ(Messages(feed.Next()), "away");
  answer_ = absl::OkStatus();
  Restart("second");
  Log("after");
  EXPECT_EQ(Messages(feed.Next()), "after;");
}

TEST_F(LogFeedTest, LinesThatAreGoneAreToldOf) {
  Log("one");
  LogFeed feed = Feed({.round = 7});
  EXPECT_EQ(Messages(feed.Next()), "");
  for (size_t i = 0; i < logging::LogTail::kMaxLines + 2; ++i) Log("other");
  Log("round=7");
  EXPECT_EQ(Messages(feed.Next()),
            "3 lines of the log were overwritten before psctl read them;round=7;");
}

TEST_F(LogFeedTest, AServerThatPromisesMoreAndGivesNothingIsNotAskedForEver) {
  LogFeed feed(
      [this](const logging::LogQuery& asked, const std::string&) -> absl::StatusOr<wire::LogPage> {
        wire::LogPage page = {log_->id(), log_->process(), log_->Read(asked)};
        page.excerpt.last_number = 7;
        page.excerpt.has_more = true;
        return page;
      },
      {}, /*as_json=*/false, &clock_);
  ASSERT_TRUE(feed.Next().ok());
  EXPECT_EQ(feed.Next().status().code(), absl::StatusCode::kInternal);
}

TEST_F(LogFeedTest, LinesOfJsonAreThoseOfTheServer) {
  Log("worker joined name=a worker=1");
  EXPECT_THAT(
      *Feed({}, /*as_json=*/true).Next(),
      HasSubstr(
          R"("process":"ps_server","message":"worker joined name=a worker=1","name":"a","worker":1})"));
}

}  // namespace
}  // namespace lodestar::psctl
