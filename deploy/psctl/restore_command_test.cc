// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/restore_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/storage/folder_lock.h"
#include "common/storage/forwarding_file_system.h"
#include "common/testing/checkpoint_files.h"
#include "common/testing/status_matchers.h"
#include "deploy/psctl/stoppable_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::HasSubstr;

// These tests use a real disk, because they need the lock of the folder.
class RestoreCommandTest : public testing::Test {
 protected:
  RestoreCommandTest() {
    root_ = absl::StrCat(testing::TempDir(), "/restore-",
                         testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    backup_ = root_ + "/backups/round-00000007";
    folder_ = root_ + "/runs";
    Write("backups/round-00000007", 7);
  }

  void Write(const std::string& name, int64_t round) {
    WriteCheckpoint(disk_, absl::StrCat(root_, "/", name), round, absl::StrCat("round ", round));
  }
  absl::StatusOr<std::string> Restore() { return RestoreCheckpoint(disk_, backup_, folder_); }

  storage::FileSystem& disk_ = storage::FileSystem::Real();
  std::string root_, backup_, folder_;
};

TEST_F(RestoreCommandTest, ServersGoOnFromIt) {
  Write("runs/round-00000005", 5);
  Write("runs/round-00000009.abandoned", 9);
  EXPECT_THAT(Restore(), IsOkAndHolds(folder_ + "/round-00000007"));
  const auto whole = checkpoints::ListWholeCheckpoints(disk_, folder_);
  ASSERT_OK(whole.status());
  EXPECT_EQ(whole->front().round, Round(7));
  EXPECT_OK(storage::FolderLock::Take(folder_, storage::NewFolderClaim(), {}).status())
      << "the folder is free";
}

TEST_F(RestoreCommandTest, WhatRootHasCopiedBelongsToTheOwnerOfTheFolder) {
  constexpr uid_t kService = 12345;
  Write("runs/round-00000005", 5);
  if (chown(folder_.c_str(), kService, kService) != 0) GTEST_SKIP() << "no rights of root here";
  ASSERT_OK_AND_ASSIGN(const std::string copy, Restore());
  EXPECT_OK(GiveToOwnerOf(folder_, copy));
  for (const std::string& path : {copy, copy + "/MANIFEST.json", folder_ + "/LOCK"}) {
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0) << path;
    EXPECT_EQ(info.st_uid, kService) << path;
  }
}

TEST_F(RestoreCommandTest, RefusesWhereSomethingElseWouldCount) {
  Write("runs/round-00000008", 8);
  EXPECT_THAT(Restore(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("round-00000008 is later than round 7")));
  std::filesystem::remove_all(folder_ + "/round-00000008");
  std::filesystem::create_directories(folder_ + "/journal/shard-0");
  EXPECT_THAT(Restore(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("journal")));
  EXPECT_FALSE(disk_.Exists(folder_ + "/round-00000007"));
}

// A disk that requests a stop when the first file is created.
class StopAtFirstFile final : public storage::ForwardingFileSystem {
 public:
  StopAtFirstFile(storage::FileSystem* disk, std::stop_source* stop)
      : storage::ForwardingFileSystem(disk), stop_(stop) {}
  absl::StatusOr<std::unique_ptr<storage::WritableFile>> Create(const std::string& path,
                                                                IfExists if_exists) override {
    stop_->request_stop();
    return disk().Create(path, if_exists);
  }

 private:
  std::stop_source* const stop_;
};

TEST_F(RestoreCommandTest, LeavesNoPartOfACopyOnceToldToStop) {
  std::stop_source stop;
  StopAtFirstFile below(&disk_, &stop);
  StoppableFileSystem disk(&below, stop.get_token());
  EXPECT_THAT(RestoreCheckpoint(disk, backup_, folder_), StatusIs(absl::StatusCode::kCancelled));
  ASSERT_OK_AND_ASSIGN(const auto left, checkpoints::ListCheckpoints(disk_, folder_));
  EXPECT_TRUE(left.empty());
}

TEST_F(RestoreCommandTest, RefusesWhileAServerHoldsTheFolder) {
  std::filesystem::create_directories(folder_);
  const auto server = storage::FolderLock::Take(folder_, storage::NewFolderClaim(), {});
  ASSERT_OK(server.status());
  EXPECT_THAT(Restore(), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("process")));
}

TEST_F(RestoreCommandTest, ADamagedOneTouchesNothing) {
  WriteFile(disk_, backup_ + "/weights", "round 8");
  EXPECT_THAT(Restore(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("crc32c")));
  EXPECT_FALSE(disk_.Exists(folder_));
}

}  // namespace
}  // namespace lodestar::psctl
