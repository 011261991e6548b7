// Folders whose new names survive a crash. Apart from file_io.h, because it writes to the log.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Makes names created in, or renamed into, the directory survive a crash. Where the file system
// cannot do that, FolderSyncStatus() decides; if it is OK, the log has a warning.
absl::Status FsyncDirectory(const std::string& path);

// What a folder that could not be synced means. `file_system` is f_type of statfs(2). OK if names
// survive a crash of this machine all the same: file servers of SMB have made them before the call
// returns. Errors: FailedPrecondition naming the file system that cannot sync folders; those of
// ErrnoStatus().
absl::Status FolderSyncStatus(int error_number, int64_t file_system, absl::string_view path);

}  // namespace lodestar
