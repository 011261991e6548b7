// SPDX-License-Identifier: Apache-2.0

// Copies checkpoints, for backups and for restoring them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"

namespace lodestar::checkpoints {

// Environment variable in which the command of --on_checkpoint gets the folder of the finished
// checkpoint.
inline constexpr char kFinishedCheckpointVariable[] = "LODESTAR_CHECKPOINT";
// Environment variable in which the same command gets the names of abandoned checkpoints of later
// rounds, separated by blanks: see NamesSetAsideAfter().
inline constexpr char kSetAsideVariable[] = "LODESTAR_SET_ASIDE";

// Copies the checkpoint at `source` into the folder `root`, and creates `root` if needed. The copy
// is named after its round. It has a temporary name until all of it is on disk and agrees with its
// manifest. Until then, and after any error, it does not count as a checkpoint. Returns the path of
// the copy. If `root` has the same copy already, copies nothing. Blocks on the disk. Errors:
//   NotFound: there is no checkpoint at `source`
//   Unavailable: `source` was removed or replaced meanwhile, or the disk of the copy returns wrong
//     bytes
//   DataLoss: `source`, or a checkpoint of that round in `root`, is damaged
//   AlreadyExists: `root` has another checkpoint of that round
//   InvalidArgument: `root` is a checkpoint or lies in one
//   those of files
absl::StatusOr<std::string> CopyCheckpoint(storage::FileSystem& file_system,
                                           const std::string& source, const std::string& root);

// Checks that a backup of the checkpoint at `source` may go to `root`. Errors: InvalidArgument if
// `root` is the folder that contains `source`, or lies in that folder. Symbolic links are followed.
absl::Status CheckIsElsewhere(storage::FileSystem& file_system, const std::string& source,
                              const std::string& root);

}  // namespace lodestar::checkpoints
