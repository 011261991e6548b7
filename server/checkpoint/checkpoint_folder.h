// SPDX-License-Identifier: Apache-2.0

// Tests a folder for checkpoints before the job depends on the folder.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/storage/file_system.h"

namespace lodestar::checkpoint {

// Creates the folder if it does not exist. Then tries what a checkpoint needs: makes a directory,
// writes and syncs a file, renames, removes. `checkpoint_bytes` is the size of one checkpoint. 0
// means that the size is not known, and that free space is not checked. `num_checkpoints` is the
// maximum number of checkpoints in the folder at once, including one that is being written. Blocks
// for the disk. Returns a warning if there is space for only some of the checkpoints that are still
// to come, otherwise an empty text. Errors: those of files; InvalidArgument (the folder is a
// checkpoint or lies in one); ResourceExhausted (no space for even one checkpoint).
absl::StatusOr<std::string> TryCheckpointFolder(storage::FileSystem& file_system,
                                                const std::string& folder, int64_t checkpoint_bytes,
                                                int num_checkpoints);

}  // namespace lodestar::checkpoint
