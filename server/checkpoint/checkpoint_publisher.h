// The steps that turn files of shards into a checkpoint that is either there whole or not at all:
// the shards' WriteShardFiles into a directory with a temporary name, PublishCheckpoint; or
// DiscardCheckpoint. A crash between any two leaves the checkpoints before it as they were. One
// writer per directory. And what becomes of the checkpoints that are no longer needed.
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

// Asked before an entry of the folder is moved or removed, with its path: whether this server may.
using MayTouch = absl::FunctionRef<absl::Status(const std::string& path)>;

// Writes the manifest into `directory`, whose name is temporary, syncs, reads everything back to
// verify, renames it to its final name, syncs the directory above. A checkpoint of the same round
// is replaced. Returns the final path. Errors: those of files; DataLoss if it does not verify.
// After an error nothing older was removed. Errors of `may_touch` are returned. It is asked again
// about a checkpoint of the same round after that has been moved aside: another leader may have
// published it between the question and the move, and gets it back.
absl::StatusOr<std::string> PublishCheckpoint(FileSystem& file_system, const std::string& directory,
                                              const Manifest& manifest, MayTouch may_touch);

// In one folder; more are noticed.
inline constexpr int kManySetAside = 8;

// In the two that follow the checkpoints at `spared` stay as they are; empty paths are none. They
// end at the first error of `may_touch`, and return it.

// Renames the checkpoints of rounds after `newest`, so that none is taken for the newest later:
// they are of a future that was left behind. What was set aside before stays beside them; the log
// says how many there are whenever one comes to more than kManySetAside. Errors: those of files.
absl::Status SetAsideNewer(FileSystem& file_system, const std::string& root, Round newest,
                           absl::Span<const std::string> spared, MayTouch may_touch);

// Which checkpoints stay.
struct Retention {
  int keep = 3;              // the newest, at least 1
  int64_t every_rounds = 0;  // and as many of the rounds that it divides; 0 means no others
};

// Removes the checkpoints before `newest` that `retention` does not keep, which counts `newest`,
// and those that were replaced. If there are more than one save leaves over, the log names them
// first.
absl::Status RemoveOld(FileSystem& file_system, const std::string& root, Round newest,
                       const Retention& retention, absl::Span<const std::string> spared,
                       MayTouch may_touch);

// Removes the directory of a checkpoint that will not be finished. Never fails: what cannot be
// removed stays for RemoveUnfinished().
void DiscardCheckpoint(FileSystem& file_system, const std::string& directory);

// Removes every directory with a temporary name, as far as `may_touch` allows. Requires: no
// checkpoint is being written.
absl::Status RemoveUnfinished(FileSystem& file_system, const std::string& root, MayTouch may_touch);

}  // namespace lodestar::checkpoint
