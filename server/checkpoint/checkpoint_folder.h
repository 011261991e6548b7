// Tries a folder for checkpoints before anything depends on it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/storage/file_system.h"

namespace lodestar::checkpoint {

// Makes the folder if need be, and does in it what a checkpoint does: makes a directory, writes and
// syncs a file, renames, removes. `checkpoint_bytes`: size of one checkpoint. 0 means that it
// is not known, and that the room is not looked at. `num_checkpoints`: how many will be there at
// once, with the one being written. Blocks for the disk. Returns a warning if there is room for
// some of them only; empty if all is well. Errors: those of files; InvalidArgument if the folder is
// a checkpoint or lies in one; ResourceExhausted without room for one.
absl::StatusOr<std::string> TryCheckpointFolder(FileSystem& file_system, const std::string& folder,
                                                int64_t checkpoint_bytes, int num_checkpoints);

}  // namespace lodestar::checkpoint
