// SPDX-License-Identifier: Apache-2.0

#include "common/history/neighbour_runs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::history {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RunHistory OfRounds(int64_t num_rounds) {
  RunHistory history;
  history.tokens_per_sample = 16;
  for (int64_t round = 0; round < num_rounds; ++round) {
    history.trained.push_back({Round(round), Round(round), 10 * (round + 1), 1.0, 2.5, 1});
    history.heldout.push_back({Round(round), 10 * round, 1.0, 2.25});
  }
  history.events = {{absl::FromUnixSeconds(1), false, "a joined"}};
  return history;
}

class NeighbourRunsTest : public ::testing::Test {
 protected:
  NeighbourRunsTest() {
    std::filesystem::remove_all(around_);
    AddRun("own", 100);
  }

  std::string FileOf(const std::string& name) const {
    return absl::StrCat(around_, "/", name, "/", kHistoryFileName);
  }

  // Adds a run whose history was written `written` seconds after 1970.
  void AddRun(const std::string& name, int64_t written, int64_t num_rounds = 3) {
    std::filesystem::create_directories(absl::StrCat(around_, "/", name));
    ASSERT_OK(WriteHistory(FileOf(name), OfRounds(num_rounds)));
    SetWritten(name, written);
  }

  void SetWritten(const std::string& name, int64_t seconds) const {
    const timespec at = {seconds, 0};
    const timespec times[] = {at, at};
    ASSERT_EQ(utimensat(AT_FDCWD, FileOf(name).c_str(), times, 0), 0);
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    const absl::StatusOr<NeighbourList> list = runs_.List();
    EXPECT_OK(list.status());
    if (!list.ok()) return names;
    for (const NeighbourList::Run& run : list->runs) names.push_back(run.name);
    return names;
  }

  // Returns the reason why the only run in the list is unreadable.
  std::string WhyUnreadable() const {
    const absl::StatusOr<NeighbourList> list = runs_.List();
    if (!list.ok()) return list.status().ToString();
    return list->runs.size() == 1 ? list->runs[0].unreadable : "not one run";
  }

  const std::string around_ = absl::StrCat(
      ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const NeighbourRuns runs_{absl::StrCat(around_, "/own")};
};

TEST_F(NeighbourRunsTest, ListsTheFoldersBesideAndWithinByWhenTheyWereWritten) {
  AddRun("older", 10);
  AddRun("newer", 200);
  AddRun("own/first", 50);
  AddRun("deep/down", 300);  // neither beside nor directly in the run's folder
  std::filesystem::create_directories(absl::StrCat(around_, "/no_run"));
  std::ofstream(absl::StrCat(around_, "/notes.txt")) << "words";
  AddRun(".hidden", 5);
  ASSERT_OK_AND_ASSIGN(const NeighbourList list, runs_.List());
  EXPECT_EQ(list.folder, std::filesystem::canonical(around_).string());
  EXPECT_THAT(list.runs, ElementsAre(NeighbourList::Run{"newer", absl::FromUnixSeconds(200), ""},
                                     NeighbourList::Run{"own/first", absl::FromUnixSeconds(50), ""},
                                     NeighbourList::Run{"older", absl::FromUnixSeconds(10), ""}));
  EXPECT_THAT(list.notes, IsEmpty());
}

TEST_F(NeighbourRunsTest, ReadsTheCurvesOfOneInFewPoints) {
  AddRun("short", 10);
  AddRun("long", 10, /*num_rounds=*/2000);
  RunHistory expected = OfRounds(3);
  expected.events.clear();
  EXPECT_THAT(runs_.Read("short"), IsOkAndHolds(expected));
  ASSERT_OK_AND_ASSIGN(const RunHistory history, runs_.Read("long"));
  EXPECT_LE(history.trained.size(), NeighbourRuns::kMaxPoints);
  EXPECT_EQ(history.trained.back().last_round, Round(1999));
}

TEST_F(NeighbourRunsTest, ReadsOnlyWhatIsInTheList) {
  AddRun("other", 10);
  AddRun("deep/down", 300);
  for (const char* name : {"own", "", ".", "..", "deep/down", "other/", "../other", "./other",
                           "/etc", "other/../other", "no_run"}) {
    EXPECT_THAT(runs_.Read(name), StatusIs(absl::StatusCode::kNotFound)) << name;
  }
  EXPECT_THAT(runs_.Read(std::string("other\0", 6)), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(NeighbourRunsTest, FollowsNoLinks) {
  AddRun("real", 10);
  const std::string outside = absl::StrCat(around_, "/deep/down");
  AddRun("deep/down", 10);
  std::filesystem::create_directory_symlink(outside, absl::StrCat(around_, "/link"));
  std::filesystem::create_directories(absl::StrCat(around_, "/false"));
  std::filesystem::create_symlink(FileOf("deep/down"), FileOf("false"));
  ASSERT_OK_AND_ASSIGN(const NeighbourList list, runs_.List());
  ASSERT_THAT(list.runs, SizeIs(2));
  EXPECT_EQ(list.runs[0].name, "false");
  EXPECT_THAT(list.runs[0].unreadable, HasSubstr("false/history.sqlite is not a regular file"));
  EXPECT_EQ(list.runs[1].unreadable, "");
  EXPECT_THAT(runs_.Read("false"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(NeighbourRunsTest, TheRunIsNotBesideItselfUnderAnyName) {
  std::filesystem::create_directories(absl::StrCat(around_, "/twin"));
  std::filesystem::create_hard_link(FileOf("own"), FileOf("twin"));
  EXPECT_THAT(Names(), IsEmpty());
  // The run's folder is named by a path that has a link.
  std::filesystem::create_directory_symlink(around_, absl::StrCat(around_, "/loop"));
  AddRun("other", 10);
  ASSERT_OK_AND_ASSIGN(const NeighbourList list,
                       NeighbourRuns(absl::StrCat(around_, "/loop/own/")).List());
  EXPECT_THAT(list.runs, SizeIs(1));
}

TEST_F(NeighbourRunsTest, SaysWhyAFileIsNoHistory) {
  AddRun("bad", 10);
  std::ofstream(FileOf("bad")) << std::string(5000, 'x');
  EXPECT_THAT(WhyUnreadable(), HasSubstr("bad/history.sqlite is not a run history"));
  EXPECT_THAT(runs_.Read("bad"), StatusIs(absl::StatusCode::kDataLoss));

  ASSERT_EQ(truncate(FileOf("bad").c_str(), NeighbourRuns::kMaxFileBytes + 1), 0);
  EXPECT_THAT(WhyUnreadable(), HasSubstr("16777217 bytes, but a run history has at most 16777216"));

  std::filesystem::remove(FileOf("bad"));
  ASSERT_EQ(mkfifo(FileOf("bad").c_str(), 0600), 0);
  EXPECT_THAT(WhyUnreadable(), HasSubstr("not a regular file"));
  EXPECT_THAT(runs_.Read("bad"), StatusIs(absl::StatusCode::kFailedPrecondition));

  // The file is damaged after its beginning.
  std::filesystem::remove(FileOf("bad"));
  AddRun("bad", 10, 500);
  ASSERT_EQ(truncate(FileOf("bad").c_str(), 5000), 0);
  EXPECT_EQ(WhyUnreadable(), "");
  EXPECT_THAT(runs_.Read("bad"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bad/")));
}

TEST_F(NeighbourRunsTest, WhatIsBeingWrittenIsNotRead) {
  AddRun("other", 10);
  std::ofstream(FileOf("other") + "-journal") << "x";
  EXPECT_THAT(runs_.Read("other"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("psctl history")));
  std::filesystem::remove(FileOf("other") + "-journal");
  EXPECT_OK(runs_.Read("other").status());
}

TEST_F(NeighbourRunsTest, LeavesTheFolderAsItWas) {
  AddRun("other", 10);
  EXPECT_OK(runs_.List().status());
  EXPECT_OK(runs_.Read("other").status());
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(absl::StrCat(around_, "/other"))) {
    files.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(files, ElementsAre(kHistoryFileName));
}

TEST_F(NeighbourRunsTest, NamesThatCouldDeceiveAreWrittenOut) {
  AddRun("a\nb\x1b[31m\xff", 10);
  ASSERT_THAT(Names(), ElementsAre("a\\nb\\x1b[31m\\xff"));
  EXPECT_OK(runs_.Read(Names()[0]).status());
}

TEST_F(NeighbourRunsTest, OfVeryManyTheNewestStay) {
  const auto num_runs = static_cast<int64_t>(NeighbourRuns::kMaxRuns) + 3;
  for (int64_t i = 0; i < num_runs; ++i) {
    const std::string name = absl::StrCat("run", i);
    std::filesystem::create_directories(absl::StrCat(around_, "/", name));
    std::ofstream(FileOf(name)).flush();
    SetWritten(name, 1000 + i);
  }
  ASSERT_OK_AND_ASSIGN(const NeighbourList list, runs_.List());
  ASSERT_THAT(list.runs, SizeIs(NeighbourRuns::kMaxRuns));
  EXPECT_EQ(list.runs.front().name, absl::StrCat("run", num_runs - 1));
  EXPECT_EQ(list.runs.back().name, "run3");
  EXPECT_THAT(list.notes, ElementsAre(HasSubstr("3 older runs were left out")));
}

TEST_F(NeighbourRunsTest, OfEndlessFoldersThatIsTold) {
  for (int i = 0; i < NeighbourRuns::kMaxEntries; ++i) {
    std::filesystem::create_directory(absl::StrCat(around_, "/", i));
  }
  ASSERT_OK_AND_ASSIGN(const NeighbourList list, runs_.List());
  EXPECT_THAT(list.notes, ElementsAre(HasSubstr("more than 4096 entries")));
}

TEST_F(NeighbourRunsTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(NeighbourRuns(absl::StrCat(around_, "/nowhere")).List(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nowhere")));
}

}  // namespace
}  // namespace lodestar::history
