// SPDX-License-Identifier: Apache-2.0

// The steps that turn files of shards into a checkpoint that exists either completely or not at
// all. The shards call WriteShardFiles into a directory with a temporary name. Then
// PublishCheckpoint or DiscardCheckpoint follows. A crash between any two steps leaves the earlier
// checkpoints as they were. Each directory has one writer. Other functions remove checkpoints that
// are no longer needed.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/runtime/ids.h"
#include "common/storage/file_system.h"

namespace lodestar::checkpoint {

// Checks that this server may move or remove the entry at `path`. Called before each such change.
using MayTouch = absl::FunctionRef<absl::Status(const std::string& path)>;

// Publishes a checkpoint:
// - Writes the manifest into `directory`, which has a temporary name, and syncs it.
// - Reads everything back to verify it.
// - If a checkpoint of the same round exists, renames that checkpoint. Another leader may have
//   published it just now, so `may_touch` is asked about it once more. If `may_touch` refuses, the
//   old name is restored.
// - Renames `directory` to its final name, and syncs the folder above.
// - Removes the old checkpoint of the same round.
//
// Returns the final path. After an error no older checkpoint was removed. Errors: those of files;
// DataLoss (the checkpoint does not verify); those of `may_touch`.
absl::StatusOr<std::string> PublishCheckpoint(storage::FileSystem& file_system,
                                              const std::string& directory,
                                              const checkpoints::Manifest& manifest,
                                              MayTouch may_touch);

// If a folder has more than this number of checkpoints with the suffix kAbandonedSuffix,
// SetAsideNewer() logs a warning.
inline constexpr int kManySetAside = 8;

// CheckCanSetAside(), SetAsideNewer() and RemoveOld() do not change the checkpoints at the paths
// `spared`; empty paths are ignored. At the first error of `may_touch` they stop and return that
// error.

// Checks that SetAsideNewer() could rename its checkpoints. Renames each of them and renames it
// back, because only a rename shows whether a file system allows it. If this process ends
// meanwhile, a start still finds each checkpoint: see kReplacedSuffix. Removes checkpoints that
// were replaced by others of the same round. Errors: those of files, naming the checkpoint.
absl::Status CheckCanSetAside(storage::FileSystem& file_system, const std::string& root,
                              Round newest, absl::Span<const std::string> spared,
                              MayTouch may_touch);

// Renames the checkpoints of rounds after `newest` (see AbandonedPath()), because the job went back
// to round `newest`. Otherwise a later start would use one of them as the newest checkpoint. Logs a
// warning if it renamed a checkpoint and the folder now has more than kManySetAside renamed
// checkpoints. Errors: those of files.
absl::Status SetAsideNewer(storage::FileSystem& file_system, const std::string& root, Round newest,
                           absl::Span<const std::string> spared, MayTouch may_touch);

// A Retention says which checkpoints stay on disk.
struct Retention {
  int keep = 3;              // number of newest checkpoints that are kept, at least 1
  int64_t every_rounds = 0;  // also keeps `keep` whose round is a multiple of this; 0 means none
};

// Removes the checkpoints of rounds before `newest` that `retention` does not keep. `newest` is the
// first of the `keep` newest ones. Also removes old versions of checkpoints that were replaced. If
// it removes more checkpoints than one save usually makes unnecessary, logs that first. If one
// cannot be removed, removes the others. Errors: those of files, for the oldest such checkpoint.
absl::Status RemoveOld(storage::FileSystem& file_system, const std::string& root, Round newest,
                       const Retention& retention, absl::Span<const std::string> spared,
                       MayTouch may_touch);

// Removes the directory of a checkpoint that will not be finished. Never fails: files that cannot
// be removed are left for RemoveUnfinished().
void DiscardCheckpoint(storage::FileSystem& file_system, const std::string& directory);

// Removes every directory with a temporary name for which `may_touch` returns OK. If one cannot be
// removed, removes the others. Requires: no checkpoint is being written. Errors: those of files,
// for the oldest such directory.
absl::Status RemoveUnfinished(storage::FileSystem& file_system, const std::string& root,
                              MayTouch may_touch);

}  // namespace lodestar::checkpoint
