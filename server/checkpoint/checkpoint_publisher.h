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

// Writes the manifest into `directory`, which has a temporary name, and syncs it. Reads everything
// back to verify it. Renames the directory to its final name and syncs the folder above. Replaces a
// checkpoint of the same round. Returns the final path. After an error nothing older was removed.
// Errors: those of files; DataLoss (it does not verify); those of `may_touch`. If a checkpoint of
// the same round exists, it is moved aside, and then `may_touch` is asked about it a second time.
// Another leader may have published it just before the move. In this case it is moved back.
absl::StatusOr<std::string> PublishCheckpoint(storage::FileSystem& file_system,
                                              const std::string& directory,
                                              const checkpoints::Manifest& manifest,
                                              MayTouch may_touch);

// If one folder has more than this number of checkpoints that were set aside, the log says so.
inline constexpr int kManySetAside = 8;

// The two functions that follow leave the checkpoints at `spared` as they are; empty paths are
// ignored. They end at the first error of `may_touch`, and return that error.

// Renames the checkpoints of rounds after `newest`, because the job went back to round `newest`.
// Without the renaming, a later start would use one of them as the newest checkpoint. Checkpoints
// that were set aside before keep their names. If there are more than kManySetAside, the log says
// so whenever another one is set aside. Errors: those of files.
absl::Status SetAsideNewer(storage::FileSystem& file_system, const std::string& root, Round newest,
                           absl::Span<const std::string> spared, MayTouch may_touch);

// A Retention says which checkpoints are kept.
struct Retention {
  int keep = 3;              // number of newest checkpoints that are kept, at least 1
  int64_t every_rounds = 0;  // also keeps `keep` whose round is a multiple of this; 0 means none
};

// Removes the checkpoints before `newest` that `retention` does not keep, and the old versions of
// checkpoints that were replaced. `newest` itself counts as kept. If more are removed than one save
// makes superfluous, the log names them first.
absl::Status RemoveOld(storage::FileSystem& file_system, const std::string& root, Round newest,
                       const Retention& retention, absl::Span<const std::string> spared,
                       MayTouch may_touch);

// Removes the directory of a checkpoint that will not be finished. Never fails: files that cannot
// be removed are left for RemoveUnfinished().
void DiscardCheckpoint(storage::FileSystem& file_system, const std::string& directory);

// Removes every directory with a temporary name for which `may_touch` returns OK. Requires: no
// checkpoint is being written.
absl::Status RemoveUnfinished(storage::FileSystem& file_system, const std::string& root,
                              MayTouch may_touch);

}  // namespace lodestar::checkpoint
