// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/serve_command.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/history/run_history.h"
#include "common/runtime/json.h"
#include "common/storage/folder_lock.h"
#include "common/testing/status_matchers.h"
#include "common/testing/unprivileged_thread.h"
#include "gmock/gmock.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ServeCommandTest : public ::testing::Test {
 protected:
  ServeCommandTest() {
    std::filesystem::remove_all(around_);
    AddRun("run");
  }

  std::string FolderOf(const std::string& name) const { return absl::StrCat(around_, "/", name); }
  std::string FileOf(const std::string& name) const {
    return absl::StrCat(FolderOf(name), "/", history::kHistoryFileName);
  }

  void AddRun(const std::string& name, double loss = 2.5) const {
    std::filesystem::create_directories(FolderOf(name));
    history::RunHistory history;
    history.trained = {{Round(0), Round(0), 10, 1.0, loss, 1}};
    ASSERT_OK(history::WriteHistory(FileOf(name), history));
    // Each write gets a later time than the one before it. On a fast disk the real times could be
    // the same.
    std::filesystem::last_write_time(
        FileOf(name), std::filesystem::file_time_type(std::chrono::seconds(++writes_)));
  }

  absl::Status Serve(const std::string& folder, const std::string& http) const {
    return ServeKeptRun(
        folder, http, [](absl::string_view) { return absl::OkStatus(); }, [] {});
  }

  static std::vector<std::string> NamesOf(const std::vector<http::HttpEvent>& events) {
    std::vector<std::string> names;
    for (const http::HttpEvent& event : events) names.push_back(event.name);
    return names;
  }

  const std::string around_ = absl::StrCat(
      ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  mutable int64_t writes_ = 0;
};

TEST_F(ServeCommandTest, ServesThePageAndTheRunUntilItIsToEnd) {
  std::string url;
  bool has_waited = false;
  ASSERT_OK(ServeKeptRun(
      FolderOf("run"), "127.0.0.1:0",
      [&url](absl::string_view text) {
        url = std::string(text);
        return absl::OkStatus();
      },
      [&] {
        has_waited = true;
        httplib::Client client(url.substr(0, url.size() - 1));
        const auto page = client.Get("/");
        ASSERT_TRUE(page);
        EXPECT_THAT(page->body, HasSubstr("<!DOCTYPE html>"));
        EXPECT_THAT(client.Get("/api/history")->body, HasSubstr(R"("loss":[2.5])"));
        // No page takes an order.
        EXPECT_EQ(
            client.Post("/api/orders/stop", {{http::HttpResponder::kOrderHeader, "-"}}, "", "")
                ->status,
            404);
        EXPECT_EQ(client.Get("/statusz")->status, 404);
      }));
  EXPECT_TRUE(has_waited);
  EXPECT_FALSE(httplib::Client(url.substr(0, url.size() - 1)).Get("/")) << "still serves";
}

TEST_F(ServeCommandTest, AReaderIsToldThatTheRunIsFinishedAndWhatIsNew) {
  ASSERT_OK_AND_ASSIGN(const http::HttpRoutes routes, KeptRunPages(FolderOf("run") + "/"));
  const http::HttpEventSource source = routes.begin_events();
  const std::vector<http::HttpEvent> first = source();
  ASSERT_THAT(NamesOf(first), ElementsAre("finished", "history"));
  ASSERT_OK_AND_ASSIGN(const Json finished, ParseJson(first[0].data));
  EXPECT_EQ(*GetString(finished, "name"), "run");
  EXPECT_FALSE(*GetBool(finished, "is_held"));
  EXPECT_EQ(*GetString(finished, "trouble"), "");
  EXPECT_THAT(source(), IsEmpty());
  AddRun("run", /*loss=*/1.5);
  const std::vector<http::HttpEvent> next = source();
  ASSERT_THAT(NamesOf(next), ElementsAre("finished", "history"));
  EXPECT_THAT(next[1].data, HasSubstr(R"("loss":[1.5])"));
}

TEST_F(ServeCommandTest, AServerAtWorkInTheFolderIsNoticed) {
  ASSERT_OK_AND_ASSIGN(const http::HttpRoutes routes, KeptRunPages(FolderOf("run")));
  const http::HttpEventSource source = routes.begin_events();
  source();
  auto lock = storage::FolderLock::Take(FolderOf("run"), storage::NewFolderClaim(), {});
  ASSERT_OK(lock);
  const std::vector<http::HttpEvent> held = source();
  ASSERT_THAT(NamesOf(held), ElementsAre("finished"));
  EXPECT_THAT(held[0].data, HasSubstr(R"("is_held":true)"));
  lock->reset();
  EXPECT_THAT(source()[0].data, HasSubstr(R"("is_held":false)"));
}

TEST_F(ServeCommandTest, WaitsForTheHistoryOfAServerThatHasJustBegun) {
  std::filesystem::remove(FileOf("run"));
  EXPECT_THAT(KeptRunPages(FolderOf("run")).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(history::kHistoryFileName)));
  const auto lock = storage::FolderLock::Take(FolderOf("run"), storage::NewFolderClaim(), {});
  ASSERT_OK(lock);
  ASSERT_OK_AND_ASSIGN(const http::HttpRoutes routes, KeptRunPages(FolderOf("run")));
  const http::HttpEventSource source = routes.begin_events();
  const std::vector<http::HttpEvent> first = source();
  ASSERT_THAT(NamesOf(first), ElementsAre("finished"));
  EXPECT_THAT(first[0].data,
              AllOf(HasSubstr(R"("is_held":true)"), HasSubstr(history::kHistoryFileName)));
  EXPECT_EQ(routes.pages.at("/api/history")({}).status, 500);
  AddRun("run");
  EXPECT_THAT(NamesOf(source()), ElementsAre("finished", "history"));
}

TEST_F(ServeCommandTest, AFileThatIsGoneOrDamagedMeanwhileIsTold) {
  ASSERT_OK_AND_ASSIGN(const http::HttpRoutes routes, KeptRunPages(FolderOf("run")));
  const http::HttpEventSource source = routes.begin_events();
  source();
  std::filesystem::rename(FileOf("run"), FileOf("run") + ".aside");
  EXPECT_THAT(source()[0].data, HasSubstr(history::kHistoryFileName));
  std::ofstream(FileOf("run")) << std::string(5000, 'x');
  EXPECT_THAT(source()[0].data, HasSubstr("history.sqlite"));
  EXPECT_EQ(routes.pages.at("/api/history")({}).status, 500);
  std::filesystem::rename(FileOf("run") + ".aside", FileOf("run"));
  EXPECT_THAT(NamesOf(source()), ElementsAre("finished", "history"));
}

TEST_F(ServeCommandTest, AJournalBesideTheFileIsToldAndNeitherReplayedNorRemoved) {
  // If this file exists, SQLite believes that a process was killed while it wrote the history.
  const std::string journal = FileOf("run") + "-journal";
  std::ofstream(journal) << std::string(1024, 'x');
  ASSERT_OK_AND_ASSIGN(const http::HttpRoutes routes, KeptRunPages(FolderOf("run")));
  EXPECT_EQ(routes.pages.at("/api/history")({}).status, 500);
  const http::HttpEventSource source = routes.begin_events();
  const std::vector<http::HttpEvent> first = source();
  ASSERT_THAT(NamesOf(first), ElementsAre("finished"));
  EXPECT_THAT(first[0].data, HasSubstr("left it half written"));
  EXPECT_EQ(std::filesystem::file_size(journal), 1024);
  // Simulates that a process with permission to write has removed the journal. The history file
  // itself is unchanged.
  std::filesystem::remove(journal);
  EXPECT_THAT(NamesOf(source()), ElementsAre("finished", "history"));
  EXPECT_EQ(routes.pages.at("/api/history")({}).status, 200);
}

TEST_F(ServeCommandTest, WhatOneReaderHasReadTheOthersGet) {
  ASSERT_OK_AND_ASSIGN(const http::HttpRoutes routes, KeptRunPages(FolderOf("run")));
  const http::HttpEventSource one = routes.begin_events();
  const http::HttpEventSource other = routes.begin_events();
  one();
  other();
  const std::string journal = FileOf("run") + "-journal";
  AddRun("run", /*loss=*/1.5);
  std::ofstream(journal) << "x";
  EXPECT_THAT(one()[0].data, HasSubstr("left it half written"));
  std::filesystem::remove(journal);
  // `other` has not got the failed reading yet, so it gets that one. `one` has got it, so the file
  // is read again for `one`.
  EXPECT_THAT(other()[0].data, HasSubstr("left it half written"));
  EXPECT_THAT(NamesOf(one()), ElementsAre("finished", "history"));
  EXPECT_THAT(NamesOf(other()), ElementsAre("finished", "history"));
  EXPECT_THAT(other(), IsEmpty());
}

TEST_F(ServeCommandTest, OtherRunsOfTheFolderAreThere) {
  AddRun("other");
  ASSERT_OK_AND_ASSIGN(const http::HttpRoutes routes, KeptRunPages(FolderOf("run")));
  EXPECT_THAT(routes.pages.at("/api/runs")({}).body, HasSubstr(R"("name":"other")"));
}

TEST_F(ServeCommandTest, WhatIsNoRunIsRefusedWithWhatToGive) {
  EXPECT_THAT(Serve(FolderOf("nowhere"), "127.0.0.1:0"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nowhere")));
  EXPECT_THAT(Serve(FileOf("run"), "127.0.0.1:0"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("is not a folder"), HasSubstr("--checkpoint_dir"))));
  EXPECT_THAT(
      Serve(around_, "127.0.0.1:0"),
      StatusIs(absl::StatusCode::kNotFound,
               AllOf(HasSubstr("no history.sqlite"), HasSubstr("with runs are run: give one"))));
  std::filesystem::create_directories(FolderOf("empty"));
  EXPECT_THAT(Serve(FolderOf("empty"), "127.0.0.1:0"),
              StatusIs(absl::StatusCode::kNotFound, Not(HasSubstr("give one"))));
  std::ofstream(FileOf("empty")) << std::string(5000, 'x');
  EXPECT_THAT(Serve(FolderOf("empty"), "127.0.0.1:0"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("empty/history.sqlite")));
}

TEST_F(ServeCommandTest, WhatThisUserMayNotReadIsNotTakenForNothing) {
  const UnprivilegedThread unprivileged;
  const auto refusal = [this](const std::string& path, std::filesystem::perms left) {
    const std::filesystem::perms all = std::filesystem::perms::owner_all;
    std::filesystem::permissions(path, left);
    const absl::Status status = Serve(FolderOf("run"), "127.0.0.1:0");
    std::filesystem::permissions(path, all);
    return status;
  };
  const auto denied = [](const std::string& path) {
    return StatusIs(absl::StatusCode::kPermissionDenied,
                    AllOf(HasSubstr(path), HasSubstr("Permission denied"),
                          HasSubstr("as the user of the run's servers")));
  };
  using std::filesystem::perms;
  EXPECT_THAT(refusal(FolderOf("run"), perms::none), denied("/run/history.sqlite:"));
  EXPECT_THAT(refusal(FolderOf("run"), perms::owner_exec), denied("/run:"));
  EXPECT_THAT(refusal(FileOf("run"), perms::none), denied("/run/history.sqlite:"));
  EXPECT_THAT(refusal(around_, perms::none), denied("/run:"));
}

TEST_F(ServeCommandTest, OnlyThisMachineIsServedAndOnlyAtAFreePort) {
  EXPECT_THAT(Serve(FolderOf("run"), "0.0.0.0:0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ssh -L")));
  EXPECT_THAT(Serve(FolderOf("run"), "8080"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--http=8080")));
  std::string url;
  ASSERT_OK(ServeKeptRun(
      FolderOf("run"), "127.0.0.1:0",
      [&url](absl::string_view text) {
        url = std::string(text);
        return absl::OkStatus();
      },
      [&] {
        const std::string taken = url.substr(7, url.size() - 8);
        EXPECT_THAT(Serve(FolderOf("run"), taken),
                    StatusIs(absl::StatusCode::kUnavailable, HasSubstr("give another --http")));
      }));
}

}  // namespace
}  // namespace lodestar::psctl
