// SPDX-License-Identifier: Apache-2.0

#include "common/storage/folder_sync.h"

#include <cerrno>
#include <cstdint>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FolderSyncTest, SyncsFoldersAndNamesThoseThatAreNotThere) {
  EXPECT_OK(FsyncDirectory(testing::TempDir()));
  EXPECT_THAT(FsyncDirectory("/nowhere/at/all"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/at/all")));
}

TEST(FolderSyncStatusTest, GoesOnWhereTheFileServerHasMadeTheName) {
  constexpr int64_t kCifs = 0xff534d42;
  constexpr int64_t kFat = 0x4d44;
  EXPECT_OK(FolderSyncStatus(EINVAL, kCifs, "/mnt/share"));
  EXPECT_OK(FolderSyncStatus(EINVAL, static_cast<int32_t>(kCifs), "/mnt/share"))
      << "f_type is signed on some machines";
  EXPECT_THAT(FolderSyncStatus(EIO, kCifs, "/mnt/share"), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(FolderSyncStatus(EINVAL, kFat, "/mnt/stick"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("/mnt/stick"), HasSubstr("vfat"))));
  EXPECT_THAT(FolderSyncStatus(EOPNOTSUPP, 0x1234, "/mnt"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("0x1234")));
}

}  // namespace
}  // namespace lodestar::storage
