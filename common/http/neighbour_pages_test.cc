// SPDX-License-Identifier: Apache-2.0

#include "common/http/neighbour_pages.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/history/run_history.h"
#include "common/runtime/json.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::http {
namespace {

using ::testing::HasSubstr;

class NeighbourPagesTest : public ::testing::Test {
 protected:
  NeighbourPagesTest() {
    std::filesystem::remove_all(around_);
    for (const char* name : {"own", "a & b"}) {
      const std::string folder = absl::StrCat(around_, "/", name);
      std::filesystem::create_directories(folder);
      history::RunHistory history;
      history.trained = {{Round(0), Round(0), 10, 1.0, 2.5, 1}};
      EXPECT_OK(
          history::WriteHistory(absl::StrCat(folder, "/", history::kHistoryFileName), history));
    }
    AddNeighbourPages(absl::StrCat(around_, "/own"), &routes_);
  }

  HttpAnswer Get(const std::string& path, const HttpQuery& query = {}) {
    return routes_.pages.at(path)(query);
  }

  const std::string around_ = absl::StrCat(
      ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  HttpRoutes routes_;
};

TEST_F(NeighbourPagesTest, TheListNamesTheOthersAndWhatIsTheMatterWithThem) {
  const HttpAnswer answer = Get("/api/runs");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.type, "application/json");
  ASSERT_OK_AND_ASSIGN(const Json list, ParseJson(answer.body));
  EXPECT_EQ(*GetString(list, "folder"), std::filesystem::canonical(around_).string());
  ASSERT_OK_AND_ASSIGN(const Json* runs, GetArray(list, "runs"));
  ASSERT_EQ(runs->size(), 1u);
  EXPECT_EQ(*GetString((*runs)[0], "name"), "a & b");
  EXPECT_GT(*GetDouble((*runs)[0], "written"), 1e9);
  EXPECT_TRUE((*runs)[0].find("unreadable")->is_null());
}

TEST_F(NeighbourPagesTest, OneOfThemHasItsCurves) {
  const HttpAnswer answer = Get("/api/runs/history", {{"name", "a & b"}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr(R"("loss":[2.5])"));
}

TEST_F(NeighbourPagesTest, WhatCannotBeShownIsToldWithItsCode) {
  EXPECT_EQ(Get("/api/runs/history").status, 400);
  EXPECT_EQ(Get("/api/runs/history", {{"name", "../own"}}).status, 404);
  const std::string file =
      (std::filesystem::canonical(around_) / "a & b" / history::kHistoryFileName).string();
  std::filesystem::resize_file(file, 4096);
  const HttpAnswer damaged = Get("/api/runs/history", {{"name", "a & b"}});
  EXPECT_EQ(damaged.status, 422);
  EXPECT_THAT(damaged.body, HasSubstr(file));
  std::filesystem::remove_all(around_);
  EXPECT_EQ(Get("/api/runs").status, 404);
}

TEST_F(NeighbourPagesTest, ARunWithoutAFolderHasNoneBesideIt) {
  HttpRoutes routes;
  AddNeighbourPages("", &routes);
  EXPECT_EQ(routes.pages.at("/api/runs")({}).body, "{\"folder\":\"\",\"runs\":[],\"notes\":[]}\n");
}

}  // namespace
}  // namespace lodestar::http
