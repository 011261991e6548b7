// SPDX-License-Identifier: Apache-2.0

#include "common/process/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lodestar::process {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

TEST(VersionTest, CommitIsBuildMetadata) {
  EXPECT_EQ(SoftwareVersion({.commit = kCommit}), std::string(kVersion) + "+0123456789");
  EXPECT_EQ(SoftwareVersion({.commit = kCommit, .has_uncommitted_changes = true}),
            std::string(kVersion) + "+0123456789.modified");
  EXPECT_EQ(SoftwareVersion({}), kVersion);
}

TEST(VersionTest, TextNamesCommitWireAndBuild) {
  const std::string text = VersionText("ps_server", {.commit = kCommit});
  EXPECT_THAT(text, StartsWith(std::string("ps_server ") + kVersion + "\n"));
  EXPECT_THAT(text, HasSubstr(std::string("\ncommit: ") + kCommit + "\n"));
  EXPECT_THAT(text, HasSubstr("\nwire: " + std::to_string(kWireVersion) + "\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nbuild: (opt|fastbuild|dbg), (gcc|Clang|.*clang) "));
}

TEST(VersionTest, TextSaysThatSourcesWereChangedOrNoCheckout) {
  EXPECT_THAT(VersionText("psctl", {.commit = kCommit, .has_uncommitted_changes = true}),
              HasSubstr(std::string(kCommit) + " and uncommitted changes\n"));
  EXPECT_THAT(VersionText("psctl", {}), HasSubstr("\ncommit: unknown, "));
}

TEST(VersionTest, TestsAreNotStamped) { EXPECT_EQ(LinkedBuildStamp().commit, ""); }

}  // namespace
}  // namespace lodestar::process
