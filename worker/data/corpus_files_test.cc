#include "worker/data/corpus_files.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> RelativePaths(const std::string& path) {
  auto files = ListCorpusFiles(path);
  EXPECT_TRUE(files.ok()) << files.status();
  std::vector<std::string> names;
  if (files.ok()) {
    for (const CorpusFile& file : *files) names.push_back(file.relative_path);
  }
  return names;
}

TEST(CorpusFilesTest, SortsByPathRelativeToTheRoot) {
  TestFolder folder;
  folder.Write("b/z", "1");
  folder.Write("a/b/c", "22");
  folder.Write("a.txt", "333");
  folder.Write("B", "");
  EXPECT_THAT(RelativePaths(folder.root()), ElementsAre("B", "a.txt", "a/b/c", "b/z"));
  auto files = ListCorpusFiles(folder.root() + "/");
  ASSERT_TRUE(files.ok());
  EXPECT_EQ((*files)[2].num_bytes, 2);
}

TEST(CorpusFilesTest, TakesOneFile) {
  TestFolder folder;
  const std::string path = folder.Write("only.txt", "abc");
  EXPECT_THAT(RelativePaths(path), ElementsAre("only.txt"));
}

TEST(CorpusFilesTest, FollowsLinksButNotInCircles) {
  TestFolder folder;
  folder.Write("sub/file", "x");
  folder.Link("..", "sub/up");
  folder.Link("self", "self");
  folder.Link("sub/file", "link_to_file");
  EXPECT_THAT(RelativePaths(folder.root()), ElementsAre("link_to_file", "sub/file"));
}

TEST(CorpusFilesTest, DanglingLinkIsAnErrorThatNamesIt) {
  TestFolder folder;
  folder.Write("good", "x");
  folder.Link("nowhere", "dangling");
  const absl::Status status = ListCorpusFiles(folder.root()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("dangling"));
}

TEST(CorpusFilesTest, MissingPathIsNotFound) {
  TestFolder folder;
  EXPECT_EQ(ListCorpusFiles(folder.Path("none")).status().code(), absl::StatusCode::kNotFound);
}

TEST(CorpusFilesTest, DeviceIsRefused) {
  EXPECT_EQ(ListCorpusFiles("/dev/zero").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CorpusFilesTest, EmptyFolderHasNoFiles) {
  TestFolder folder;
  EXPECT_THAT(RelativePaths(folder.root()), ElementsAre());
}

}  // namespace
}  // namespace lodestar
