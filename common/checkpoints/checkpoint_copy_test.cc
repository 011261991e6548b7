// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/checkpoint_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/testing/checkpoint_files.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"

namespace lodestar::checkpoints {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSource[] = "/runs/round-00000007";
constexpr char kCopy[] = "/backups/of/today/round-00000007";

class CheckpointCopyTest : public testing::Test {
 protected:
  CheckpointCopyTest() { WriteCheckpoint(disk_, kSource, 7, "weights of round 7"); }

  absl::StatusOr<std::string> Copy() { return CopyCheckpoint(disk_, kSource, "/backups/of/today"); }

  SimulatedFileSystem disk_;
};

TEST_F(CheckpointCopyTest, IsACheckpointOfTheSameRoundAndSurvivesACrash) {
  EXPECT_THAT(Copy(), IsOkAndHolds(kCopy));
  ASSERT_OK(disk_.RemoveAll("/runs"));
  std::mt19937_64 chance(1);
  disk_.Crash(chance);
  EXPECT_THAT(disk_.ReadWholeFile("/backups/of/today/round-00000007/weights", 100),
              IsOkAndHolds("weights of round 7"));
  EXPECT_OK(VerifyCheckpoint(disk_, kCopy).status());
}

TEST_F(CheckpointCopyTest, ACheckpointTakesNone) {
  WriteCheckpoint(disk_, "/backups/round-00000009", 9, "weights of round 9");
  EXPECT_THAT(CopyCheckpoint(disk_, kSource, "/backups/round-00000009"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/backups/round-00000009")));
}

TEST_F(CheckpointCopyTest, RefusesToCopyIntoACheckpointBehindALink) {
  storage::FileSystem& disk = storage::FileSystem::Real();
  const std::string base = testing::TempDir() + "/behind_a_link";
  WriteCheckpoint(disk, base + "/run/round-00000007", 7, "weights of round 7");
  WriteCheckpoint(disk, base + "/run/round-00000009", 9, "weights of round 9");
  std::filesystem::create_directory_symlink("run/round-00000009", base + "/latest");
  for (const char* root : {"/latest", "/latest/below"}) {
    EXPECT_THAT(CopyCheckpoint(disk, base + "/run/round-00000007", base + root),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/run/round-00000009")));
  }
  std::filesystem::remove_all(base);
}

TEST_F(CheckpointCopyTest, OneThatIsThereIsNotCopiedAgainAndAnotherOneStays) {
  EXPECT_THAT(Copy(), IsOkAndHolds(kCopy));
  disk_.SetFaultHook([](FileOperation operation, const std::string&) {
    return operation == FileOperation::kRead ? absl::OkStatus()
                                             : absl::UnavailableError("nothing is written");
  });
  EXPECT_THAT(Copy(), IsOkAndHolds(kCopy));
  disk_.SetFaultHook(nullptr);
  WriteCheckpoint(disk_, kSource, 7, "other weights of 7");
  EXPECT_THAT(Copy(), StatusIs(absl::StatusCode::kAlreadyExists,
                               HasSubstr("is another checkpoint of round 7")));
  EXPECT_THAT(disk_.ReadWholeFile("/backups/of/today/round-00000007/weights", 100),
              IsOkAndHolds("weights of round 7"));
}

TEST_F(CheckpointCopyTest, BackupsLieOutsideTheFolderOfTheRun) {
  storage::FileSystem& disk = storage::FileSystem::Real();
  const std::string base = testing::TempDir() + "/backups_lie_outside";
  ASSERT_OK(disk.CreateDirectories(base + "/run/round-00000007"));
  std::filesystem::create_directory_symlink("run", base + "/link");
  const std::string source = base + "/run/round-00000007";
  for (const char* root : {"/run", "/run/", "/run/backups/of/today", "/link", "/link/new",
                           "/other/../run", "/run/round-00000007"}) {
    EXPECT_THAT(CheckIsElsewhere(disk, source, base + root),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(base + "/run")))
        << root;
  }
  for (const char* root : {"", "/run2", "/backups", "/run/../backups"}) {
    EXPECT_OK(CheckIsElsewhere(disk, source, base + root)) << root;
  }
}

TEST_F(CheckpointCopyTest, DamageIsThatOfTheSourceAndNothingIsLeft) {
  WriteFile(disk_, "/runs/round-00000007/weights", "weights of round 8");
  EXPECT_THAT(Copy(), StatusIs(absl::StatusCode::kDataLoss,
                               HasSubstr("/runs/round-00000007/weights is damaged")));
  EXPECT_THAT(disk_.List("/backups/of/today"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(CopyCheckpoint(disk_, "/runs", "/backups"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/runs/MANIFEST.json")));
}

// A server may remove an old checkpoint while it is being copied.
TEST_F(CheckpointCopyTest, OneThatIsRemovedMeanwhileIsSaidToBe) {
  bool is_removed = false;
  disk_.SetFaultHook([&](FileOperation operation, const std::string& path) {
    const bool begins = operation == FileOperation::kCreate && absl::EndsWith(path, "/weights");
    if (begins && !std::exchange(is_removed, true)) {
      EXPECT_OK(RemoveDirectory(disk_, kSource));
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(Copy(), StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("was removed while it was copied")));
  EXPECT_THAT(disk_.List("/backups/of/today"), IsOkAndHolds(IsEmpty()));
}

TEST_F(CheckpointCopyTest, WhateverTheDiskRefusesTheCopyIsWholeOrNotThere) {
  bool is_done = false;
  for (int allowed = 0; !is_done; ++allowed) {
    int left = allowed;
    disk_.SetFaultHook([&](FileOperation operation, const std::string&) {
      return operation == FileOperation::kRead || left-- > 0
                 ? absl::OkStatus()
                 : absl::ResourceExhaustedError("the disk is full");
    });
    is_done = Copy().ok();
    disk_.SetFaultHook(nullptr);
    std::mt19937_64 chance(allowed);
    disk_.Crash(chance);
    WriteCheckpoint(disk_, kSource, 7, "weights of round 7");
    const auto whole = ListWholeCheckpoints(disk_, "/backups/of/today");
    ASSERT_OK(whole.status());
    for (const CheckpointEntry& entry : *whole) {
      EXPECT_OK(VerifyCheckpoint(disk_, entry.path).status()) << allowed;
    }
    ASSERT_LT(allowed, 100);
  }
  EXPECT_OK(VerifyCheckpoint(disk_, kCopy).status());
}

}  // namespace
}  // namespace lodestar::checkpoints
