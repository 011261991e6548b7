// SPDX-License-Identifier: Apache-2.0

#include "server/status/history_keeper.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/history/run_history.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::status {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class HistoryKeeperTest : public ::testing::Test {
 protected:
  void Keep() {
    HistoryKeeper::Deps deps;
    deps.clock = &clock_;
    deps.recorder = &recorder_;
    deps.confirm = [this] {
      if (!is_asked_.HasBeenNotified()) is_asked_.Notify();
      return std::exchange(confirmed_, absl::OkStatus());
    };
    deps.on_trouble = [this](const absl::Status& status) { troubles_.push_back(status); };
    keeper_.emplace(path_, deps);
  }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".sqlite");
  SimulatedClock clock_;
  HistoryRecorder recorder_;
  std::vector<absl::Status> troubles_;
  absl::Notification is_asked_;
  absl::Status confirmed_;  // the next result of `confirm`
  std::optional<HistoryKeeper> keeper_;
};

TEST_F(HistoryKeeperTest, AnotherProcessGoesOnFromWhatIsKept) {
  Keep();
  rounds::RoundSummary round;
  round.round = Round(3);
  round.train_loss = 2.5;
  round.total_samples = 40;
  recorder_.Note(round, absl::UnixEpoch());
  recorder_.Note(coordinator::Alarm{"disk full"}, absl::FromUnixSeconds(7));
  keeper_.reset();
  const history::RunHistory kept = recorder_.Read();
  recorder_.Note(coordinator::Event{"that is not kept"}, absl::UnixEpoch());
  Keep();
  EXPECT_EQ(recorder_.Read(), kept);
  EXPECT_EQ(keeper_->lost(), "");
  EXPECT_THAT(troubles_, IsEmpty());
}

TEST_F(HistoryKeeperTest, WritesTheFirstNewsBeforeTheIntervalIsOver) {
  Keep();
  clock_.AwaitSleepers(1);
  recorder_.Note(coordinator::Event{"joined"}, absl::UnixEpoch());
  clock_.AdvanceTime(HistoryKeeper::kFirstInterval);
  // The keeper calls `confirm` before it writes. `confirm` notifies is_asked_.
  EXPECT_TRUE(is_asked_.WaitForNotificationWithTimeout(absl::Minutes(1)));
}

TEST_F(HistoryKeeperTest, AFileThatIsNoHistoryIsMovedAside) {
  std::ofstream(path_) << std::string(4096, 'x');
  Keep();
  EXPECT_THAT(keeper_->lost(), HasSubstr("the old file is kept as " + path_ + ".damaged"));
  recorder_.Note(coordinator::Event{"joined"}, absl::UnixEpoch());
  keeper_.reset();
  ASSERT_OK_AND_ASSIGN(const history::RunHistory kept, history::ReadHistory(path_));
  EXPECT_EQ(kept.events.size(), 1u);
}

TEST_F(HistoryKeeperTest, NeverReplacesFileThatWasMovedAside) {
  std::ofstream(path_ + ".damaged") << "kept";
  std::ofstream(path_) << std::string(4096, 'x');
  Keep();
  EXPECT_THAT(keeper_->lost(), HasSubstr(path_ + ".damaged.2"));
  std::string kept;
  std::ifstream(path_ + ".damaged") >> kept;
  EXPECT_EQ(kept, "kept");
}

TEST_F(HistoryKeeperTest, MovesFileOfLaterReleaseAsideAsThat) {
  for (const char* aside : {".later_release", ".later_release.2"}) {
    std::remove(path_.c_str());
    ASSERT_OK(history::WriteHistory(path_, history::RunHistory()));
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    sqlite3_exec(database, "CREATE TABLE more (x); PRAGMA user_version = 2", nullptr, nullptr,
                 nullptr);
    sqlite3_close(database);
    Keep();
    EXPECT_THAT(keeper_->lost(), HasSubstr(path_ + aside));
    keeper_.reset();
    EXPECT_THAT(history::ReadHistory(path_ + aside), StatusIs(absl::StatusCode::kUnimplemented));
  }
}

TEST_F(HistoryKeeperTest, WhatCannotBeWrittenIsTold) {
  HistoryKeeper::Deps deps;
  deps.recorder = &recorder_;
  deps.on_trouble = [this](const absl::Status& status) { troubles_.push_back(status); };
  keeper_.emplace(absl::StrCat(path_, "/nowhere"), deps);
  recorder_.Note(coordinator::Event{"joined"}, absl::UnixEpoch());
  keeper_.reset();
  EXPECT_THAT(troubles_, ElementsAre(Not(IsOk())));
}

TEST_F(HistoryKeeperTest, TroubleIsOverOnceAWriteSucceedsAgain) {
  confirmed_ = absl::FailedPreconditionError("the folder has another owner");
  Keep();
  clock_.AwaitSleepers(1);
  recorder_.Note(coordinator::Event{"joined"}, absl::UnixEpoch());
  clock_.AdvanceTime(HistoryKeeper::kFirstInterval);
  ASSERT_TRUE(is_asked_.WaitForNotificationWithTimeout(absl::Minutes(1)));
  keeper_.reset();  // writes again
  EXPECT_THAT(troubles_, ElementsAre(StatusIs(absl::StatusCode::kFailedPrecondition), IsOk()));
}

}  // namespace
}  // namespace lodestar::status
