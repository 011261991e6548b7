// SPDX-License-Identifier: Apache-2.0

#include "worker/data/corpus_files.h"

#include <string>
#include <vector>

#include "common/storage/folder_lock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> RelativePaths(const std::string& path) {
  const auto listing = ListCorpusFiles(path);
  EXPECT_TRUE(listing.ok()) << listing.status();
  std::vector<std::string> names;
  if (listing.ok()) {
    for (const CorpusFile& file : listing->files) names.push_back(file.relative_path);
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
  const auto listing = ListCorpusFiles(folder.root() + "/");
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->files[2].num_bytes, 2);
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

TEST(CorpusFilesTest, LeavesOutHiddenBackupAndPartialEntries) {
  TestFolder folder;
  const std::vector<std::string> side = {
      ".a.txt.Xy12Zw", ".gitattributes", ".nfs000000000012", "#a.txt#",
      "a.txt.bak",     "a.txt.orig",     "a.txt.part",       "a.txt.tmp",
      "a.txt~",        "b/.a.txt.swp",   "lost+found",
  };
  for (const std::string& name : side) folder.Write(name, "text");
  folder.Write(".ipynb_checkpoints/a-checkpoint.txt", "text");
  folder.Link("nowhere", ".#a.txt");
  for (const char* name : {"a.txt", "b/c.txt", "part.1", "tmp"}) folder.Write(name, "text");
  EXPECT_THAT(RelativePaths(folder.root()), ElementsAre("a.txt", "b/c.txt", "part.1", "tmp"));
  EXPECT_EQ(ListCorpusFiles(folder.root())->side_entries.size(), side.size() + 2);
  // IsSideEntry() is true for these names, but a path that the user gives is always read.
  EXPECT_THAT(RelativePaths(folder.Path(".ipynb_checkpoints")), ElementsAre("a-checkpoint.txt"));
  EXPECT_THAT(RelativePaths(folder.Path("a.txt~")), ElementsAre("a.txt~"));
}

TEST(CorpusFilesTest, LeavesOutWhatServersHaveWritten) {
  TestFolder folder;
  for (const char* name : {"a.txt", "other/LOCK", "run/b.txt"}) folder.Write(name, "text");
  EXPECT_THAT(RelativePaths(folder.root()), ElementsAre("a.txt", "other/LOCK", "run/b.txt"));
  ASSERT_TRUE(storage::FolderLock::Take(folder.Path("run"), storage::NewFolderClaim(), {}).ok());
  EXPECT_THAT(RelativePaths(folder.root()), ElementsAre("a.txt", "other/LOCK"));
  folder.Write("copy/MANIFEST.json", "{}");
  folder.Write("copy/shard-00000-of-00001.safetensors", "weights");
  EXPECT_THAT(RelativePaths(folder.root()), ElementsAre("a.txt", "other/LOCK"));
  EXPECT_THAT(ListCorpusFiles(folder.root())->side_entries, ElementsAre("copy", "run"));
  // Here the data lies in the folder of a run.
  folder.Write("run/history.sqlite-wal", "rounds");
  folder.Write("run/journal/coordinator/1.journal", "records");
  EXPECT_THAT(RelativePaths(folder.Path("run")), ElementsAre("b.txt"));
}

}  // namespace
}  // namespace lodestar::data
