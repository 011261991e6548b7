// Copies of checkpoints: backups, and what is brought back from them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"

namespace lodestar {

// The variable in which a command of --on_checkpoint has the folder of the finished checkpoint.
inline constexpr char kFinishedCheckpointVariable[] = "LODESTAR_CHECKPOINT";
// The variable in which it has the result of NamesSetAsideAfter() that folder, separated by blanks.
inline constexpr char kSetAsideVariable[] = "LODESTAR_SET_ASIDE";

// Copies the checkpoint at `source` into the folder `root`, which is made if it is not there, under
// the name that its round gives it. The copy has that name once all of it is on disk and compares
// with its manifest; until then, and after any error, nothing new counts there. Blocks for the
// disk. Returns the path of the copy, which may have been there already. Errors: NotFound if there
// is no checkpoint at `source`; Unavailable if it was removed meanwhile; DataLoss if it is damaged;
// AlreadyExists if `root` has another checkpoint of that round; InvalidArgument if `root` is a
// checkpoint or lies in one; those of files.
absl::StatusOr<std::string> CopyCheckpoint(FileSystem& file_system, const std::string& source,
                                           const std::string& root);

// Checks where a backup of the checkpoint at `source` is to go. Errors: InvalidArgument if `root`
// is the folder that `source` lies in, or lies in that folder, also if links lead there.
absl::Status CheckIsElsewhere(FileSystem& file_system, const std::string& source,
                              const std::string& root);

}  // namespace lodestar
