// The steps that turn files of shards into a checkpoint that is either there whole or not at all:
// BeginCheckpoint, the shards' WriteShardFiles, PublishCheckpoint; or DiscardCheckpoint. A crash
// between any two leaves the checkpoints before it as they were. One writer per directory.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint_manifest.h"
#include "common/ids.h"

namespace lodestar {

// Creates `root` if need be and an empty `root`/round-00001234.tmp; returns its path. Left-overs of
// earlier attempts at any round are removed.
absl::StatusOr<std::string> BeginCheckpoint(const std::string& root, Round round);

// Writes the manifest into the directory from BeginCheckpoint(), syncs, reads everything back to
// verify, renames it to its final name, syncs `root`. A checkpoint of the same round is replaced.
// Then removes older ones but for the newest `keep` (at least 1, counting this one), and sets newer
// ones, of a future that was resumed from before, aside. Returns the final path. Errors: those of
// files; DataLoss if it does not verify. After an error nothing older was removed.
absl::StatusOr<std::string> PublishCheckpoint(const std::string& directory,
                                              const Manifest& manifest, int keep);

// Renames the checkpoints of rounds after `newest`, so that none is taken for the newest later:
// they are of a future that was left behind. Part of PublishCheckpoint(); for other folders of the
// job.
absl::Status SetAsideNewer(const std::string& root, Round newest);

// Removes the directory of a checkpoint that will not be finished. Never fails: what cannot be
// removed is removed by the next BeginCheckpoint().
void DiscardCheckpoint(const std::string& directory);

}  // namespace lodestar
