// SPDX-License-Identifier: Apache-2.0

#include "server/checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/storage/file_system.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"

namespace lodestar::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 4;

class CheckpointFolderTest : public testing::Test {
 protected:
  CheckpointFolderTest()
      : folder_(testing::TempDir() + "/folder-" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
  }
  const std::string folder_;
};

TEST_F(CheckpointFolderTest, AGoodOneIsMadeAndLeftEmpty) {
  const auto warning = TryCheckpointFolder(storage::FileSystem::Real(), folder_ + "/a/b", 4096, 4);
  ASSERT_OK(warning);
  EXPECT_EQ(*warning, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/a/b"));
}

TEST_F(CheckpointFolderTest, WhatAProcessOfTheSameNumberHasLeftIsInNobodysWay) {
  const std::string left = absl::StrCat(folder_, "/.tried-", getpid());
  for (const std::string& directory : {left, left + "-renamed"}) {
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/file") << "lodestar";
  }
  EXPECT_OK(TryCheckpointFolder(storage::FileSystem::Real(), folder_, 4096, 4));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(CheckpointFolderTest, WhatIsNoFolderIsRefusedByName) {
  EXPECT_THAT(
      TryCheckpointFolder(storage::FileSystem::Real(), "/proc/foo/ck", 0, 1),
      StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("/proc/foo"), HasSubstr("cannot"))));
  std::ofstream(folder_) << "a file";
  EXPECT_FALSE(TryCheckpointFolder(storage::FileSystem::Real(), folder_, 0, 1).ok());
  // /proc/self is a folder in which not even root may write.
  EXPECT_FALSE(TryCheckpointFolder(storage::FileSystem::Real(), "/proc/self", 0, 1).ok());
}

TEST_F(CheckpointFolderTest, CheckpointsHoldNoRuns) {
  const std::string checkpoint = folder_ + "/round-00000007";
  std::filesystem::create_directories(checkpoint);
  std::ofstream(checkpoint + "/MANIFEST.json") << "{}";
  for (const char* below : {"", "/", "/run", "/run/of/today"}) {
    EXPECT_THAT(TryCheckpointFolder(storage::FileSystem::Real(), checkpoint + below, 0, 1),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("--init_from="), HasSubstr("/round-00000007"))));
  }
  std::filesystem::create_directory_symlink(checkpoint, folder_ + "/latest");
  EXPECT_THAT(TryCheckpointFolder(storage::FileSystem::Real(), folder_ + "/latest", 0, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/round-00000007")));
  std::filesystem::remove(folder_ + "/latest");
  EXPECT_FALSE(std::filesystem::exists(checkpoint + "/run"));
  EXPECT_OK(TryCheckpointFolder(storage::FileSystem::Real(), folder_, 0, 1));
  // The renamed checkpoint is still refused, because it has a manifest. A folder inside it is
  // accepted, because the folder above counts as a checkpoint only if it has the name of one.
  std::filesystem::rename(checkpoint, folder_ + "/best");
  EXPECT_FALSE(TryCheckpointFolder(storage::FileSystem::Real(), folder_ + "/best", 0, 1).ok());
  EXPECT_OK(TryCheckpointFolder(storage::FileSystem::Real(), folder_ + "/best/run", 0, 1));
}

TEST_F(CheckpointFolderTest, AFullDiskIsRefusedWithWhatIsNeeded) {
  SimulatedFileSystem disk;
  disk.SetCapacity(4);
  EXPECT_THAT(TryCheckpointFolder(disk, "/ck", 4096, 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("/ck"), HasSubstr("takes 4096 bytes; make room"))));
}

// A parent folder that existed before must be synced. If it is not synced, a power failure could
// remove the checkpoint folder with its checkpoints.
TEST_F(CheckpointFolderTest, FolderAboveThatWasThereHasToBeSyncedIfItCanBe) {
  SimulatedFileSystem disk;
  ASSERT_OK(disk.CreateDirectories("/mounted"));
  absl::Status answer;
  disk.SetFaultHook([&](FileOperation operation, const std::string& path) {
    return operation == FileOperation::kSyncDirectory && path == "/" ? answer : absl::OkStatus();
  });
  for (const absl::StatusCode code :
       {absl::StatusCode::kPermissionDenied, absl::StatusCode::kInvalidArgument}) {
    answer = absl::Status(code, "cannot be synced");
    EXPECT_OK(TryCheckpointFolder(disk, "/mounted/ck", 0, 1));
  }
  answer = absl::UnknownError("Input/output error");
  EXPECT_THAT(TryCheckpointFolder(disk, "/mounted/ck", 0, 1), StatusIs(absl::StatusCode::kUnknown));
}

TEST_F(CheckpointFolderTest, TooLittleRoomIsRefusedWithTheNumbers) {
  EXPECT_THAT(TryCheckpointFolder(storage::FileSystem::Real(), folder_, kHuge, 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(folder_), HasSubstr("bytes free"))));
}

TEST_F(CheckpointFolderTest, RoomForSomeOnlyIsAWarning) {
  std::filesystem::create_directories(folder_);
  const auto free_bytes = static_cast<int64_t>(std::filesystem::space(folder_).available);
  const auto warning =
      TryCheckpointFolder(storage::FileSystem::Real(), folder_, free_bytes / 3, 1000);
  ASSERT_OK(warning);
  EXPECT_THAT(*warning, AllOf(HasSubstr("1000 more will be kept"), HasSubstr("--checkpoint_keep")));
}

}  // namespace
}  // namespace lodestar::checkpoint
