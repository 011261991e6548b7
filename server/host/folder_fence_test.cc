// SPDX-License-Identifier: Apache-2.0

#include "server/host/folder_fence.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/storage/folder_lock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::host {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FolderFenceTest : public testing::Test {
 protected:
  FolderFenceTest()
      : root_(absl::StrCat(testing::TempDir(), "/",
                           testing::UnitTest::GetInstance()->current_test_info()->name())),
        runs_(MakeFolder("runs")),
        lock_(*storage::FolderLock::Take(runs_, storage::NewFolderClaim(), {})) {}
  ~FolderFenceTest() override {
    lock_.reset();
    fs::remove_all(root_);
  }

  std::string MakeFolder(const std::string& name) const {
    const std::string path = absl::StrCat(root_, "/", name);
    fs::create_directories(path);
    return path;
  }
  std::string MakeFile(const std::string& name) const {
    const std::string path = absl::StrCat(root_, "/", name);
    std::ofstream(path) << "content";
    return path;
  }
  shards::SharedFolder shared() const { return {runs_, lock_->claim_id()}; }

  const std::string root_;
  const std::string runs_;
  std::unique_ptr<storage::FolderLock> lock_;
};

constexpr char kSave[] = "/round-00000007.a1.tmp";

auto IsRefused(const std::string& reason) {
  return StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(reason));
}

TEST_F(FolderFenceTest, SavesGoIntoTheFolderThatTheCoordinatorHolds) {
  const FolderFence fence({});
  EXPECT_OK(fence.CheckSave(shared(), runs_ + kSave));
  const std::string other = MakeFolder("other");
  EXPECT_THAT(fence.CheckSave(shared(), other + kSave), IsRefused("does not name the coordinator"));
  EXPECT_THAT(fence.CheckSave({other, lock_->claim_id()}, other + kSave), IsRefused("is missing"));
  EXPECT_THAT(fence.CheckSave({runs_, lock_->claim_id() + 1}, runs_ + kSave), IsRefused("LOCK"));
  EXPECT_THAT(fence.CheckSave({"", 0}, runs_ + kSave), IsRefused("LOCK"));
  const auto fallback = storage::FolderLock::Take(other, storage::NewFolderClaim(), {});
  EXPECT_OK(fence.CheckSave(shared(), other + kSave)) << "held by the same process";
}

TEST_F(FolderFenceTest, SavesHaveTheNamesOfSaves) {
  for (const FolderFence& fence : {FolderFence({}), FolderFence({runs_})}) {
    for (const char* name : {"", "/", "/round-00000007", "/etc", "/round-x.tmp", "/.tmp"}) {
      EXPECT_FALSE(fence.CheckSave(shared(), runs_ + name).ok()) << name;
    }
    for (const std::string& path :
         {absl::StrCat("runs", kSave), absl::StrCat(runs_, "/../runs", kSave),
          absl::StrCat(runs_, "/.", kSave), std::string(1 << 20, '/'),
          absl::StrCat(runs_, absl::string_view("\0", 1), kSave)}) {
      EXPECT_FALSE(fence.CheckSave(shared(), path).ok()) << path.substr(0, 200);
    }
  }
}

TEST_F(FolderFenceTest, LinksAreNotFollowed) {
  const FolderFence fence({});
  const std::string aim = MakeFolder("aim");
  fs::create_directory_symlink(aim, runs_ + kSave);
  EXPECT_THAT(fence.CheckSave(shared(), runs_ + kSave), IsRefused("it is a symbolic link"));
  fs::create_directory_symlink(aim, runs_ + "/round-00000001");
  EXPECT_THAT(fence.CheckSource(shards::CheckpointSource{runs_ + "/round-00000001"}),
              IsRefused("it is a symbolic link"));
  fs::create_directory(runs_ + "/round-00000002");
  EXPECT_OK(fence.CheckSource(shards::CheckpointSource{runs_ + "/round-00000002"}));
  fs::create_symlink(MakeFile("secret"), runs_ + "/round-00000002/shard.safetensors");
  EXPECT_THAT(fence.CheckSource(shards::CheckpointSource{runs_ + "/round-00000002"}),
              IsRefused("it is a symbolic link"));
  EXPECT_THAT(fence.CheckPublished(runs_ + "/round-00000002"), IsRefused("it is a symbolic link"));
  fs::create_directory_symlink(aim, runs_ + "/out");
  const FolderFence named({runs_});
  EXPECT_THAT(named.CheckSave(shared(), runs_ + "/out" + kSave),
              IsRefused("this server's flags give only"));
}

TEST_F(FolderFenceTest, WhatTheOperatorHasNamedIsAllThereIs) {
  const std::string weights = MakeFile("weights.bin");
  const FolderFence fence({runs_, weights});
  EXPECT_OK(fence.CheckSave(shared(), runs_ + kSave));
  EXPECT_OK(fence.CheckSource(shards::SafetensorsSource{weights}));
  EXPECT_OK(fence.CheckSource(shards::CheckpointSource{MakeFolder("runs/mine")}));
  EXPECT_OK(fence.CheckSource(shards::InitialSource{}));
  EXPECT_OK(fence.CheckSource(shards::ClientSource{}));
  EXPECT_OK(fence.CheckFolder(shared()));
  EXPECT_OK(fence.CheckFolder({}));
  const std::string other = MakeFolder("runs2");
  EXPECT_THAT(fence.CheckFolder({other, 1}), IsRefused("this server's flags give only"));
  EXPECT_THAT(fence.CheckSave(shared(), other + kSave), IsRefused("this server's flags give only"));
  EXPECT_THAT(fence.CheckSource(shards::SafetensorsSource{MakeFile("other.safetensors")}),
              IsRefused("this server's flags give only"));
  EXPECT_THAT(fence.CheckSource(shards::CheckpointSource{MakeFolder("runs2/round-00000003")}),
              IsRefused("this server's flags give only"));
  EXPECT_THAT(fence.CheckPublished(other + "/round-00000003"),
              IsRefused("this server's flags give only"));
}

TEST_F(FolderFenceTest, LinksAreFollowedInAFolderOfWeightsThatTheOperatorHasNamed) {
  const std::string folder = MakeFolder("models/gpt2");
  fs::create_symlink(MakeFile("blob"), folder + "/model.safetensors");
  EXPECT_OK(FolderFence({folder}).CheckSource(shards::SafetensorsSource{folder}));
  EXPECT_THAT(
      FolderFence({absl::StrCat(root_, "/models")}).CheckSource(shards::SafetensorsSource{folder}),
      IsRefused("it is a symbolic link"));
  EXPECT_THAT(FolderFence({}).CheckSource(shards::SafetensorsSource{folder}),
              IsRefused("the same --resume or --init_from"));
}

TEST_F(FolderFenceTest, WithoutThatOnlyWeightsAreRead) {
  const FolderFence fence({});
  EXPECT_OK(fence.CheckSource(shards::SafetensorsSource{MakeFile("weights.safetensors")}));
  EXPECT_OK(fence.CheckSource(shards::SafetensorsSource{MakeFolder("round-00000004.abandoned")}));
  EXPECT_OK(fence.CheckPublished(runs_ + "/round-00000004"));
  EXPECT_THAT(fence.CheckSource(shards::SafetensorsSource{"/etc/passwd"}),
              IsRefused("end with .safetensors"));
  EXPECT_THAT(fence.CheckSource(shards::SafetensorsSource{MakeFolder("secrets")}),
              IsRefused("not that of a checkpoint"));
  EXPECT_THAT(fence.CheckSource(shards::CheckpointSource{runs_ + kSave}),
              IsRefused("not that of a checkpoint"));
  EXPECT_THAT(fence.CheckSource(shards::SafetensorsSource{"weights.safetensors"}),
              IsRefused("not an absolute path"));
  EXPECT_THAT(fence.CheckSource(shards::SafetensorsSource{"a\x1b[2J"}), IsRefused("a\\x1b[2J"));
}

}  // namespace
}  // namespace lodestar::host
