// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/verify_command.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/testing/checkpoint_files.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class VerifyCommandTest : public testing::Test {
 protected:
  absl::Status Verify(const std::vector<std::string>& paths) {
    lines_.clear();
    return VerifyCheckpoints(disk_, paths, [this](absl::string_view line) {
      lines_.emplace_back(line);
      return absl::OkStatus();
    });
  }

  SimulatedFileSystem disk_;
  std::vector<std::string> lines_;
};

TEST_F(VerifyCommandTest, SaysOfEachWhetherItIsWhole) {
  WriteCheckpoint(disk_, "runs/round-00000007", 7, "weights of seven");
  WriteCheckpoint(disk_, "runs/round-00000009.abandoned", 9, "weights of nine");
  WriteCheckpoint(disk_, "runs/round-00000011", 11, "weights");
  ASSERT_OK(disk_.CreateDirectories("runs/round-00000012.1000-1.tmp"));
  EXPECT_OK(Verify({"runs/"}));
  EXPECT_THAT(lines_,
              ElementsAre("runs/round-00000012.1000-1.tmp  not finished, servers never use it",
                          "runs/round-00000011  whole: round 11, 7 B in 1 file",
                          "runs/round-00000009.abandoned  whole: round 9, 15 B in 1 file",
                          "runs/round-00000007  whole: round 7, 16 B in 1 file"));
  EXPECT_OK(Verify({"runs/round-00000007", "runs/round-00000011/"}));
  EXPECT_EQ(lines_.size(), 2);
}

TEST_F(VerifyCommandTest, NamesWhatIsDamagedAndReadsTheRest) {
  WriteCheckpoint(disk_, "runs/round-00000007", 7, "weights of seven");
  WriteCheckpoint(disk_, "runs/round-00000009", 9, "weights of nine");
  WriteCheckpoint(disk_, "runs/round-00000011", 11, "weights");
  WriteCheckpoint(disk_, "runs/round-00000012", 12, "weights");
  WriteFile(disk_, "runs/round-00000009/weights", "weights of mine");
  WriteFile(disk_, "runs/round-00000011/weights", "weigh");
  ASSERT_OK(disk_.RemoveAll("runs/round-00000012/MANIFEST.json"));
  EXPECT_THAT(Verify({"runs"}), StatusIs(absl::StatusCode::kDataLoss,
                                         "3 of 4 checkpoints are damaged or could not be read"));
  EXPECT_THAT(
      lines_,
      ElementsAre(AllOf(StartsWith("runs/round-00000012  DAMAGED: "), HasSubstr("MANIFEST.json")),
                  "runs/round-00000011  DAMAGED: runs/round-00000011/weights is damaged: it has 5 "
                  "bytes, but MANIFEST.json says 7 bytes",
                  AllOf(StartsWith("runs/round-00000009  DAMAGED: "), HasSubstr("has crc32c")),
                  StartsWith("runs/round-00000007  whole: ")));
}

TEST_F(VerifyCommandTest, WhatAServerRemovesMeanwhileIsNotDamaged) {
  WriteCheckpoint(disk_, "runs/round-00000007", 7, "weights of seven");
  WriteCheckpoint(disk_, "runs/round-00000009", 9, "weights of nine");
  bool is_removed = false;
  disk_.SetFaultHook([&](FileOperation operation, const std::string& path) {
    const bool is_read =
        operation == FileOperation::kRead && path == "runs/round-00000007/MANIFEST.json";
    if (is_read && !std::exchange(is_removed, true)) {
      EXPECT_OK(disk_.RemoveAll("runs/round-00000007"));
    }
    return absl::OkStatus();
  });
  EXPECT_OK(Verify({"runs"}));
  EXPECT_THAT(lines_, ElementsAre(StartsWith("runs/round-00000009  whole: "),
                                  "runs/round-00000007  was removed while psctl read the folder"));
}

TEST_F(VerifyCommandTest, LinkToAFolderThatIsNotThereIsAnError) {
  const std::string folder = testing::TempDir() + "/linked";
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink("/nowhere/round-00000007", folder + "/round-00000007");
  EXPECT_THAT(VerifyCheckpoints(storage::FileSystem::Real(), {folder},
                                [this](absl::string_view line) {
                                  lines_.emplace_back(line);
                                  return absl::OkStatus();
                                }),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(lines_, ElementsAre(StartsWith(folder + "/round-00000007  NOT READ: ")));
}

TEST_F(VerifyCommandTest, APathWithoutACheckpointIsAnError) {
  ASSERT_OK(disk_.CreateDirectories("empty"));
  EXPECT_THAT(Verify({"empty"}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("empty")));
  EXPECT_THAT(Verify({"none"}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

}  // namespace
}  // namespace lodestar::psctl
