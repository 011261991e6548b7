// SPDX-License-Identifier: Apache-2.0

// Makes the files of a server and of its replica equal, by sending or by fetching.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/durability/replica/mirrored_folders.h"
#include "server/durability/replica/replica_connection.h"
#include "server/durability/replica/summed_file_system.h"

namespace lodestar::replica {

// Progress of a copy, reported repeatedly while it runs.
struct CopyProgress {
  int64_t done_bytes = 0;
  int64_t all_bytes = 0;  // bytes that must be copied in all
};
using OnCopyProgress = std::function<void(const CopyProgress& progress)>;

// Fetches complete checkpoints from the replica that are lost here. A checkpoint is lost in two
// cases:
// - The checkpoint here is damaged.
// - No checkpoint here is of its round, and it is not older than all checkpoints here.
//
// `tell` gets a line for each. If the replica's checkpoint is damaged too, nothing changes here.
// Errors: those of the connection and of the disk.
absl::Status FetchLostCheckpoints(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                                  const std::vector<FileEntry>& theirs,
                                  ReplicaConnection& connection, const OnCopyProgress& on_progress,
                                  absl::FunctionRef<void(const std::string& text)> tell);

// Sends what the replica lacks. Then removes the files that only the replica has. Returns when all
// changes are on the replica's disk. If the replica could be promoted before, it can be promoted at
// any time during the copy. Errors: those of the lane and of the disk.
absl::Status SendDifferences(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                             const std::vector<FileEntry>& theirs, ReplicaLane& lane,
                             const OnCopyProgress& on_progress);

// Fetches everything that the replica has. There must be no journal here, or only a part that an
// interrupted fetch has left. Checkpoints here that are not the replica's are renamed to
// *.abandoned, and `tell` gets a line for each. When it returns, the files are on disk. Errors:
// those of the connection and of the disk; DataLoss (bytes were changed during the transfer).
absl::Status FetchAll(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                      ReplicaConnection& connection, const OnCopyProgress& on_progress,
                      absl::FunctionRef<void(const std::string& text)> tell);

}  // namespace lodestar::replica
