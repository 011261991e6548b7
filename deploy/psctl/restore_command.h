// SPDX-License-Identifier: Apache-2.0

// psctl restore copies a checkpoint back into the folder that servers resume from. No server is
// needed.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"

namespace lodestar::psctl {

// Copies the checkpoint at `path` into `folder` by CopyCheckpoint(). `folder` is the
// --checkpoint_dir of the servers that will continue from the checkpoint. Locks `folder` during the
// copy, as a server would. Returns the path of the copy. Errors:
// - Those of CopyCheckpoint() and FolderLock::Take().
// - FailedPrecondition: servers would continue from a later checkpoint or a journal in `folder`.
absl::StatusOr<std::string> RestoreCheckpoint(storage::FileSystem& file_system,
                                              const std::string& path, const std::string& folder);

// If this process runs as root, gives the copy at `path` and the lock of `folder` to the owner of
// `folder`. Otherwise servers that run as that user could not read them. Errors: those of the disk.
absl::Status GiveToOwnerOf(const std::string& folder, const std::string& path);

}  // namespace lodestar::psctl
