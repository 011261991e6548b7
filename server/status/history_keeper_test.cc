#include "server/status/history_keeper.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/run_history.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HistoryKeeperTest : public ::testing::Test {
 protected:
  void Keep() {
    HistoryKeeper::Deps deps;
    deps.recorder = &recorder_;
    deps.on_trouble = [this](absl::string_view text) { troubles_.emplace_back(text); };
    keeper_.emplace(path_, deps);
  }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".sqlite");
  HistoryRecorder recorder_;
  std::vector<std::string> troubles_;
  std::optional<HistoryKeeper> keeper_;
};

TEST_F(HistoryKeeperTest, AnotherProcessGoesOnFromWhatIsKept) {
  Keep();
  RoundSummary round;
  round.round = Round(3);
  round.train_loss = 2.5;
  round.total_samples = 40;
  recorder_.Note(round, absl::UnixEpoch());
  recorder_.Note(Alarm{"disk full"}, absl::FromUnixSeconds(7));
  keeper_.reset();
  const RunHistory kept = recorder_.Read();
  recorder_.Note(Event{"that is not kept"}, absl::UnixEpoch());
  Keep();
  EXPECT_EQ(recorder_.Read(), kept);
  EXPECT_EQ(keeper_->lost(), "");
  EXPECT_THAT(troubles_, IsEmpty());
}

TEST_F(HistoryKeeperTest, AFileThatIsNoHistoryIsMovedAside) {
  std::ofstream(path_) << std::string(4096, 'x');
  Keep();
  EXPECT_THAT(keeper_->lost(), HasSubstr("it is kept as " + path_ + ".damaged"));
  recorder_.Note(Event{"joined"}, absl::UnixEpoch());
  keeper_.reset();
  ASSERT_OK_AND_ASSIGN(const RunHistory kept, ReadHistory(path_));
  EXPECT_EQ(kept.events.size(), 1u);
}

TEST_F(HistoryKeeperTest, WhatCannotBeWrittenIsTold) {
  HistoryKeeper::Deps deps;
  deps.recorder = &recorder_;
  deps.on_trouble = [this](absl::string_view text) { troubles_.emplace_back(text); };
  keeper_.emplace(absl::StrCat(path_, "/nowhere"), deps);
  recorder_.Note(Event{"joined"}, absl::UnixEpoch());
  keeper_.reset();
  EXPECT_THAT(troubles_, ElementsAre(HasSubstr("are not kept: ")));
}

}  // namespace
}  // namespace lodestar
