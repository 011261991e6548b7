// SPDX-License-Identifier: Apache-2.0

#include "common/history/run_history.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::history {
namespace {

using ::testing::HasSubstr;

RunHistory Some() {
  RunHistory history;
  history.rounds_per_point = 2;
  history.tokens_per_sample = 64;
  history.loss_unit = job::LossUnit::kBitsPerByte;
  history.settings = {{"model", "tiny"}, {"batch_size", "2"}};
  history.trained = {{Round(0), Round(1), 20, 1.5, 2.25, 2, 0.125},
                     {Round(2), Round(3), 40, 3.0, 0.0, 0, 0.0}};
  history.heldout = {{Round(2), 20, 1.5, 2.5}};
  history.events = {{absl::FromUnixMicros(1'234'567), true, "a \"word\"; DROP TABLE events"}};
  return history;
}

class RunHistoryTest : public ::testing::Test {
 protected:
  // Runs SQL on the file, as other programs might.
  void Change(const std::string& statements) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(database, statements.c_str(), nullptr, nullptr, &error), SQLITE_OK)
        << error;
    sqlite3_close(database);
  }

  std::string Image() const {
    std::stringstream bytes;
    bytes << std::ifstream(path_).rdbuf();
    return bytes.str();
  }

  const std::string path_ =
      absl::StrCat(::testing::TempDir(), "/",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".sqlite");
};

TEST_F(RunHistoryTest, WhatIsWrittenIsRead) {
  ASSERT_OK(WriteHistory(path_, Some()));
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(Some()));
  // The second history replaces the first and is not appended to it.
  ASSERT_OK(WriteHistory(path_, Some()));
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(Some()));
  ASSERT_OK(WriteHistory(path_, RunHistory()));
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(RunHistory()));
}

TEST_F(RunHistoryTest, TextsOfOthersAreReadAsTextsThatCanBeShown) {
  ASSERT_OK(WriteHistory(path_, RunHistory()));
  Change("INSERT INTO events VALUES(1, 0, CAST(x'61ff1b5b6d' AS TEXT))");
  ASSERT_OK_AND_ASSIGN(const RunHistory history, ReadHistory(path_));
  ASSERT_EQ(history.events.size(), 1u);
  EXPECT_EQ(history.events.front().text, "a\\xff\\x1b[m");
}

TEST_F(RunHistoryTest, AnEmptyFileIsFilled) {
  std::ofstream(path_).flush();  // a full disk leaves an empty file
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

TEST_F(RunHistoryTest, AFileFromBeforeTokensWereNotedIsRead) {
  ASSERT_OK(WriteHistory(path_, Some()));
  Change("DROP TABLE sample_size");
  RunHistory expected = Some();
  expected.tokens_per_sample = 0;
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(expected));
  ASSERT_OK(WriteHistory(path_, Some()));
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(Some()));
}

TEST_F(RunHistoryTest, ReadsFileWithoutSettingsUnitAndLearningRates) {
  ASSERT_OK(WriteHistory(path_, Some()));
  Change("DROP TABLE learning_rates; DROP TABLE loss_unit; DROP TABLE settings");
  RunHistory expected = Some();
  expected.loss_unit.reset();
  expected.settings.clear();
  expected.trained.front().learning_rate = 0.0;
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(expected));
  ASSERT_OK(WriteHistory(path_, Some()));
  EXPECT_THAT(ReadHistory(path_), IsOkAndHolds(Some()));
}

TEST_F(RunHistoryTest, RefusesSettingsAndLearningRatesThatNoRunHas) {
  for (const char* change :
       {"DELETE FROM learning_rates WHERE rowid = 1", "INSERT INTO learning_rates VALUES (1.0)",
        "INSERT INTO settings WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT "
        "600) SELECT x, x FROM c"}) {
    ASSERT_OK(WriteHistory(path_, Some()));
    Change(change);
    EXPECT_THAT(ReadHistory(path_), StatusIs(absl::StatusCode::kDataLoss)) << change;
  }
}

TEST_F(RunHistoryTest, TheBytesOfAFileAreReadAsTheFileIs) {
  ASSERT_OK(WriteHistory(path_, Some()));
  EXPECT_THAT(ParseHistory(Image(), path_), IsOkAndHolds(Some()));
  EXPECT_THAT(ParseHistory("", path_), IsOkAndHolds(RunHistory()));
  for (const std::string& bytes : {std::string(5000, 'x'), std::string("SQLite format 3"),
                                   Image().substr(0, 4096), std::string(100, '\0')}) {
    EXPECT_THAT(ParseHistory(bytes, path_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)))
        << bytes.size();
  }
}

TEST_F(RunHistoryTest, ADatabaseWithMoreThanOurTablesIsForeign) {
  // SQLite computes a view or a computed column while it is read. A hostile file could make that
  // take any time, so such files are refused.
  for (const char* change :
       {"DROP TABLE trained; CREATE VIEW trained AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL "
        "SELECT x + 1 FROM c) SELECT x, x, x, 1.0, 1.0, 1 FROM c",
        "DROP TABLE events; CREATE TABLE events (time_us INTEGER, is_alarm INTEGER, text TEXT AS "
        "(printf('%.*c', 200000, 'x')))",
        "CREATE TABLE more (x)", "PRAGMA journal_mode = WAL", "PRAGMA application_id = 7"}) {
    ASSERT_OK(WriteHistory(path_, Some()));
    Change(change);
    EXPECT_THAT(ParseHistory(Image(), path_), StatusIs(absl::StatusCode::kDataLoss)) << change;
    std::remove(path_.c_str());
  }
}

TEST_F(RunHistoryTest, CountsThatNoRunHasAreRefused) {
  for (const char* change :
       {"UPDATE scale SET rounds_per_point = 0", "UPDATE trained SET num_losses = 9e18",
        "UPDATE trained SET samples = -1", "UPDATE heldout SET round = 4e18",
        "UPDATE sample_size SET tokens = -5"}) {
    ASSERT_OK(WriteHistory(path_, Some()));
    Change(change);
    EXPECT_THAT(ReadHistory(path_), StatusIs(absl::StatusCode::kDataLoss)) << change;
  }
}

TEST_F(RunHistoryTest, AFileOfEndlessRowsIsRefusedSoon) {
  ASSERT_OK(WriteHistory(path_, Some()));
  Change(
      "INSERT INTO heldout WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT "
      "20000) SELECT x, x, x, x FROM c");
  EXPECT_THAT(ReadHistory(path_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("more than 10000 rows")));
}

TEST_F(RunHistoryTest, LongTextsAreCut) {
  RunHistory history = Some();
  history.events.front().text = std::string(100'000, 'x');
  ASSERT_OK(WriteHistory(path_, history));
  ASSERT_OK_AND_ASSIGN(const RunHistory read, ReadHistory(path_));
  EXPECT_EQ(read.events.front().text.size(), 4096u);
}

TEST_F(RunHistoryTest, NamesFileThatCannotBeMadeAndWhy) {
  // SQLite tries a second time without creating the file, and then reports that there is no file.
  // The error must still be that of the first try.
  EXPECT_THAT(WriteHistory("/sys/history.sqlite", Some()),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("/sys/history.sqlite")));
  ASSERT_OK(WriteHistory(path_, Some()));
  const std::string journal = path_ + "-journal";
  ASSERT_EQ(symlink("/sys/journal", journal.c_str()), 0);
  EXPECT_THAT(WriteHistory(path_, Some()),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(journal)));
}

TEST_F(RunHistoryTest, FileOfLaterReleaseIsNoDamage) {
  ASSERT_OK(WriteHistory(path_, Some()));
  Change("CREATE TABLE more (x); PRAGMA user_version = 2");
  EXPECT_THAT(ReadHistory(path_), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(path_)));
  EXPECT_THAT(WriteHistory(path_, Some()), StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(ParseHistory(Image(), path_), StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(RunHistoryTest, APipeIsNoHistory) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(ReadHistory(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not a regular file")));
  std::remove(path_.c_str());
}

TEST_F(RunHistoryTest, JsonHasColumnsAndNullForWhatIsNotKnown) {
  EXPECT_EQ(
      HistoryJson(Some()),
      R"({"rounds_per_point":2,"tokens_per_sample":64,"loss_unit":"bits/byte",)"
      R"("settings":{"model":"tiny","batch_size":"2"},"trained":{"round":[1,3],"samples":[20,40],)"
      R"("seconds":[1.5,3.0],"loss":[2.25,null],"learning_rate":[0.125,null]},"heldout":{"round":[2],"samples":[20],)"
      R"("seconds":[1.5],"loss":[2.5]},"events":[{"time":1.234567,"alarm":true,)"
      R"("text":"a \"word\"; DROP TABLE events"}]})");
}

}  // namespace
}  // namespace lodestar::history
