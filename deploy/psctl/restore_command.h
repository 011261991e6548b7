// psctl restore: brings a checkpoint back into the folder that servers resume from, without a
// server.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"

namespace lodestar {

// Copies the checkpoint at `path` into `folder`, --checkpoint_dir of the servers that are to go on
// from it, as CopyCheckpoint() does. The folder is locked as by a server meanwhile. Returns the
// path of the copy. Errors: those of CopyCheckpoint() and FolderLock::Take(); FailedPrecondition if
// servers would go on from something else in the folder: a later checkpoint, or a journal.
absl::StatusOr<std::string> RestoreCheckpoint(FileSystem& file_system, const std::string& path,
                                              const std::string& folder);

// Gives the copy at `path`, and the lock of `folder` in which it lies, to the owner of the folder,
// if this process runs as root: servers that run as that user could not read them otherwise.
// Errors: those of the disk.
absl::Status GiveToOwnerOf(const std::string& folder, const std::string& path);

}  // namespace lodestar
