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
// Environment variable in which the same command gets the result of NamesSetAsideAfter() for that
// folder. The names are separated by blanks.
inline constexpr char kSetAsideVariable[] = "LODESTAR_SET_ASIDE";

// Copies the checkpoint at `source` into the folder `root`, which is created if needed, under the
// name for its round. The copy has a temporary name until all of it is on disk and agrees with its
// manifest. Until then, and after any error, the copy does not count as a checkpoint. Blocks on the
// disk. Returns the path of the copy, which may have existed already. Errors: NotFound (there is no
// checkpoint at `source`); Unavailable (`source` was removed meanwhile); DataLoss (`source` or the
// copy is damaged); AlreadyExists (`root` has another checkpoint of that round); InvalidArgument
// (`root` is a checkpoint or lies in one); those of files.
absl::StatusOr<std::string> CopyCheckpoint(storage::FileSystem& file_system,
                                           const std::string& source, const std::string& root);

// Checks that a backup of the checkpoint at `source` may go to `root`. Errors: InvalidArgument if
// `root` is the folder that `source` lies in, or lies in that folder, also through links.
absl::Status CheckIsElsewhere(storage::FileSystem& file_system, const std::string& source,
                              const std::string& root);

}  // namespace lodestar::checkpoints
