// SPDX-License-Identifier: Apache-2.0

// Makes new names in a folder survive a crash.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar::storage {

// Makes names that were created in or renamed into the directory survive a crash. If the directory
// cannot be synced, returns FolderSyncStatus(). If that is OK, also logs a warning.
absl::Status FsyncDirectory(const std::string& path);

// Decides whether names may be lost because a folder could not be synced. `error_number` is the
// error of the sync. `file_system` is f_type of statfs(2).
// - OK means that names survive a crash of this machine without a sync. SMB file servers create
//   names before the call returns.
// - FailedPrecondition names a file system that cannot sync folders, so that names may be lost.
// - For any other error number, returns ErrnoStatus().
absl::Status FolderSyncStatus(int error_number, int64_t file_system, absl::string_view path);

}  // namespace lodestar::storage
