#include "common/run_history.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

RunHistory Some() {
  RunHistory history;
  history.rounds_per_point = 2;
  history.trained = {{Round(0), Round(1), 20, 1.5, 2.25, 2}, {Round(2), Round(3), 40, 3.0, 0.0, 0}};
  history.heldout = {{Round(2), 20, 1.5, 2.5}};
  history.events = {{absl::FromUnixMicros(1'234'567), true, "a \"word\"; DROP TABLE events"}};
  return history;
}

class RunHistoryTest : public ::testing::Test {
 protected:
  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".sqlite");
};

TEST_F(RunHistoryTest, WhatIsWrittenIsRead) {
  ASSERT_OK(WriteHistory(path_, Some()));
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(Some()));
  // In its place, and not behind it.
  ASSERT_OK(WriteHistory(path_, Some()));
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(Some()));
  ASSERT_OK(WriteHistory(path_, RunHistory()));
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(RunHistory()));
}

TEST_F(RunHistoryTest, AnEmptyFileIsFilled) {
  std::ofstream(path_).flush();  // as a full disk leaves one
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(RunHistory()));
  ASSERT_OK(WriteHistory(path_, Some()));
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(Some()));
}

TEST_F(RunHistoryTest, OtherFilesAreLeftAsTheyAre) {
  EXPECT_THAT(ReadHistory(path_), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  const std::string words(5000, 'x');
  std::ofstream(path_) << words;
  EXPECT_THAT(ReadHistory(path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)));
  EXPECT_THAT(WriteHistory(path_, Some()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)));
  std::stringstream kept;
  kept << std::ifstream(path_).rdbuf();
  EXPECT_EQ(kept.str(), words);
}

TEST_F(RunHistoryTest, AFileThatWasCutIsAnError) {
  RunHistory history = Some();
  history.events.resize(500, history.events.front());
  ASSERT_OK(WriteHistory(path_, history));
  std::stringstream whole;
  whole << std::ifstream(path_).rdbuf();
  for (const size_t size : {size_t{10}, size_t{4096}, whole.str().size() / 2}) {
    std::ofstream(path_, std::ios::trunc) << whole.str().substr(0, size);
    EXPECT_FALSE(ReadHistory(path_).ok()) << size;
  }
}

TEST_F(RunHistoryTest, JsonHasColumnsAndNullForWhatIsNotKnown) {
  EXPECT_EQ(HistoryJson(Some()),
            R"({"rounds_per_point":2,"trained":{"round":[1,3],"samples":[20,40],)"
            R"("seconds":[1.5,3.0],"loss":[2.25,null]},"heldout":{"round":[2],"samples":[20],)"
            R"("seconds":[1.5],"loss":[2.5]},"events":[{"time":1.234567,"alarm":true,)"
            R"("text":"a \"word\"; DROP TABLE events"}]})");
}

}  // namespace
}  // namespace lodestar
