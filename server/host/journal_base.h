// SPDX-License-Identifier: Apache-2.0

// The base of a shard's journal is what the journal goes on from: a checkpoint or a file of
// weights. The functions here find where the base is now. The folder of a run may have been moved,
// copied or mounted elsewhere since the journal named it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/storage/file_system.h"
#include "server/coordinator/shards/shard_command.h"

namespace lodestar::host {

// RunFolders has the folders of the run, as the flags of this process name them.
struct RunFolders {
  std::string checkpoint_dir = {};  // empty: not known
  std::string fallback_dir = {};    // empty: there is none
  std::string journal_dir = {};     // folder of this server's journal
};

struct JournalBase {
  shards::WeightsSource source;
  // --checkpoint_dir at the time when the journal named the source. Empty means not known.
  std::string run_folder;
  // ContentChecksum() of the checkpoint. Not set means that the journal has none.
  std::optional<uint32_t> checksum;
};

// Returns a checksum over the round and the files of a checkpoint. Copies of a checkpoint have the
// same checksum.
uint32_t ContentChecksum(const checkpoints::Manifest& manifest);
// Returns the checksum of the source if it is a checkpoint that can be read. Otherwise the result
// is not set. Blocks for the disk.
std::optional<uint32_t> ChecksumOf(storage::FileSystem& file_system,
                                   const shards::WeightsSource& source);

// Returns the new path of `path` after the folder `from` was renamed to `to`. A path outside of
// `from` stays as it is. Every path stays as it is if either folder is empty.
std::string PathAfterMove(const std::string& path, const std::string& from, const std::string& to);

// Returns true if this run may go on from the journal. Returns false if the journal belongs to
// another run and a checkpoint includes all of it. The journal belongs to this run in these cases:
// - The journal lies in the folder of this run.
// - The journal names the folder of this run, or a folder that is gone, because it was moved.
// - The folder that the journal names lacks the checkpoint that the journal goes on from, and this
//   run has that checkpoint.
// - The journal names no folder, or this run has none.
//
// Blocks for the disk. Errors: FailedPrecondition (the journal belongs to another run, and may have
// rounds that are in no checkpoint).
absl::StatusOr<bool> IsJournalOfRun(storage::FileSystem& file_system, const JournalBase& base,
                                    const RunFolders& folders);

// Returns the base's source with its present path. Verifies all of a checkpoint. Looks in the
// folders of the run, and at the path that the journal names. There is one exception: if the
// journal names a checkpoint inside of the run, looks only in the run's folders. So a copied run
// never reads the folder that it was copied from. Errors:
// - Unavailable: the source is not at any of the paths, but an operator may bring it back
// - NotFound: the folder has other checkpoints, but not this one
// - those of VerifyCheckpoint()
absl::StatusOr<shards::WeightsSource> FindBase(storage::FileSystem& file_system,
                                               const JournalBase& base, const RunFolders& folders);

}  // namespace lodestar::host
