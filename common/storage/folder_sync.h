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

// Returns whether a folder that could not be synced is a problem. `error_number` is the error of
// the sync. `file_system` is f_type of statfs(2). OK means that names survive a crash of this
// machine anyway: SMB file servers create names before the call returns. Errors: FailedPrecondition
// naming the file system that cannot sync folders; those of ErrnoStatus().
absl::Status FolderSyncStatus(int error_number, int64_t file_system, absl::string_view path);

}  // namespace lodestar::storage
