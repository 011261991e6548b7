// SPDX-License-Identifier: Apache-2.0

#include "server/durability/replica/summed_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/crc32c/crc32c.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"

namespace lodestar::replica {
namespace {

class SummedFileSystemTest : public testing::Test {
 protected:
  SummedFileSystemTest() {
    disk_.SetFaultHook([this](FileOperation operation, const std::string&) {
      if (operation == FileOperation::kRead) ++num_reads_;
      return operation == FileOperation::kAppend ? append_error_ : absl::OkStatus();
    });
  }

  static absl::Status Write(
      storage::FileSystem& disk, const std::string& path, absl::string_view text,
      storage::FileSystem::IfExists if_exists = storage::FileSystem::IfExists::kTruncate,
      bool sync = true) {
    absl::StatusOr<std::unique_ptr<storage::WritableFile>> file = disk.Create(path, if_exists);
    if (!file.ok()) return file.status();
    for (const char c : text) {
      if (absl::Status appended = (*file)->Append({&c, 1}); !appended.ok()) return appended;
    }
    return sync ? (*file)->Sync() : (*file)->Close();
  }

  static FileSum SumOf(absl::string_view text) {
    return {static_cast<int64_t>(text.size()), crc32c::Crc32c(text.data(), text.size())};
  }

  // Expects the sum of `text`. Expects that the file is read if `is_read`, and is not read
  // otherwise.
  void ExpectSum(const std::string& path, absl::string_view text, bool is_read) {
    const int before = num_reads_;
    const absl::StatusOr<FileSum> sum = summed_.Sum(path);
    ASSERT_OK(sum.status());
    EXPECT_EQ(*sum, SumOf(text)) << path;
    EXPECT_EQ(num_reads_ > before, is_read) << path;
  }

  absl::Status append_error_;
  int num_reads_ = 0;
  SimulatedFileSystem disk_;
  SummedFileSystem summed_{&disk_};
};

TEST_F(SummedFileSystemTest, WhatWasWrittenAndSyncedIsNotRead) {
  ASSERT_OK(Write(summed_, "/a", "some text"));
  ExpectSum("/a", "some text", /*is_read=*/false);
  ASSERT_OK(Write(summed_, "/a", "another"));
  ExpectSum("/a", "another", /*is_read=*/false);
  ASSERT_OK(Write(summed_, "/a", " and more", storage::FileSystem::IfExists::kGoOn));
  ExpectSum("/a", "another and more", /*is_read=*/false);
}

TEST_F(SummedFileSystemTest, WhatWasThereBeforeIsReadOnce) {
  ASSERT_OK(Write(disk_, "/a", "old"));
  ExpectSum("/a", "old", /*is_read=*/true);
  ExpectSum("/a", "old", /*is_read=*/false);
  ASSERT_OK(Write(summed_, "/a", "er", storage::FileSystem::IfExists::kGoOn));
  ExpectSum("/a", "older", /*is_read=*/false);
}

TEST_F(SummedFileSystemTest, OnlyWhatWasSyncedThroughItIsKnownToBe) {
  ASSERT_OK(Write(disk_, "/a", "old"));
  EXPECT_FALSE(summed_.IsSynced("/a"));
  ExpectSum("/a", "old", /*is_read=*/true);
  EXPECT_FALSE(summed_.IsSynced("/a"));
  ASSERT_OK(Write(summed_, "/a", "er", storage::FileSystem::IfExists::kGoOn, /*sync=*/false));
  EXPECT_FALSE(summed_.IsSynced("/a"));
  ASSERT_OK(Write(summed_, "/b", "new"));
  EXPECT_TRUE(summed_.IsSynced("/b"));
  EXPECT_FALSE(summed_.IsSynced("/c"));
}

TEST_F(SummedFileSystemTest, WhatTheDiskMayLoseIsReadEachTime) {
  ASSERT_OK(Write(summed_, "/a", "text", storage::FileSystem::IfExists::kTruncate, /*sync=*/false));
  ExpectSum("/a", "text", /*is_read=*/true);
  ExpectSum("/a", "text", /*is_read=*/true);
  ASSERT_OK(Write(summed_, "/b", "text"));
  ASSERT_OK(Write(summed_, "/b", "+", storage::FileSystem::IfExists::kGoOn, /*sync=*/false));
  ExpectSum("/b", "text+", /*is_read=*/true);
}

TEST_F(SummedFileSystemTest, AFileThatWasNotWrittenToItsEndIsRead) {
  const auto file = summed_.Create("/a", storage::FileSystem::IfExists::kFail);
  ASSERT_OK(file.status());
  ASSERT_OK((*file)->Append("begin"));
  append_error_ = absl::ResourceExhaustedError("full");
  EXPECT_FALSE((*file)->Append("lost").ok());
  append_error_ = absl::OkStatus();
  ASSERT_OK((*file)->Append("end"));
  ASSERT_OK((*file)->Sync());
  ExpectSum("/a", "beginend", /*is_read=*/true);
}

TEST_F(SummedFileSystemTest, WhatIsInADirectoryKeepsItsSumUnderAnotherName) {
  ASSERT_OK(summed_.CreateDirectories("/run/new/deep"));
  ASSERT_OK(Write(summed_, "/run/new/a", "text"));
  ASSERT_OK(Write(summed_, "/run/new/deep/b", "more"));
  ASSERT_OK(Write(summed_, "/run/newer", "other"));
  ASSERT_OK(summed_.Rename("/run/new", "/run/done"));
  ExpectSum("/run/done/a", "text", /*is_read=*/false);
  ExpectSum("/run/done/deep/b", "more", /*is_read=*/false);
  ExpectSum("/run/newer", "other", /*is_read=*/false);
  EXPECT_FALSE(summed_.Sum("/run/new/a").ok());
}

TEST_F(SummedFileSystemTest, NamesThatAreGoneOrAnothersHaveNoSum) {
  ASSERT_OK(summed_.CreateDirectories("/run"));
  ASSERT_OK(Write(summed_, "/run/a", "text"));
  ASSERT_OK(summed_.RemoveAll("/run"));
  EXPECT_FALSE(summed_.Sum("/run/a").ok());
  ASSERT_OK(Write(summed_, "/a", "first"));
  ASSERT_OK(Write(summed_, "/b", "second"));
  ASSERT_OK(summed_.Rename("/b", "/a"));
  ExpectSum("/a", "second", /*is_read=*/true);
}

// The first writer still has its file open, but the file's name now belongs to another file.
TEST_F(SummedFileSystemTest, AWriterSaysNothingOfAFileThatHasTakenTheName) {
  const auto old = summed_.Create("/a", storage::FileSystem::IfExists::kFail);
  ASSERT_OK(old.status());
  ASSERT_OK((*old)->Append("old"));
  ASSERT_OK(summed_.Rename("/a", "/b"));
  ASSERT_OK(Write(summed_, "/a", "new"));
  ASSERT_OK((*old)->Sync());
  ExpectSum("/a", "new", /*is_read=*/false);
  ExpectSum("/b", "old", /*is_read=*/true);
}

}  // namespace
}  // namespace lodestar::replica
