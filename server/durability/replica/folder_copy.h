// SPDX-License-Identifier: Apache-2.0

// Makes the folders of a server and its replica equal again, whichever side lacks files.
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

// Progress of a copy, reported now and then while files are copied.
struct CopyProgress {
  int64_t done_bytes = 0;
  int64_t all_bytes = 0;  // bytes that must be copied in all
};
using OnCopyProgress = std::function<void(const CopyProgress& progress)>;

// Fetches the checkpoints that this machine has lost and the replica has. A checkpoint is lost if
// the one here does not verify. It is also lost if no checkpoint here is of its round, unless all
// checkpoints here are newer. `tell` gets a line for each. If the replica's checkpoint does not
// verify either, the one here stays as it is. Errors: those of the connection and of the disk.
absl::Status FetchLostCheckpoints(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                                  const std::vector<FileEntry>& theirs,
                                  ReplicaConnection& connection, const OnCopyProgress& on_progress,
                                  absl::FunctionRef<void(const std::string& text)> tell);

// Sends what the replica lacks, and returns once the replica has all of it on disk. Then removes
// the files that only the replica has. If the replica could be promoted before, it can be promoted
// at every moment of this copy. Errors: those of the lane and of the disk.
absl::Status SendDifferences(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                             const std::vector<FileEntry>& theirs, ReplicaLane& lane,
                             const OnCopyProgress& on_progress);

// Fetches all that the replica has. There must be no journal here, except for what an interrupted
// fetch has left. Checkpoints that the replica lacks are renamed to *.abandoned; `tell` gets a line
// for each. The files are on disk when it returns. Errors: those of the connection and of the disk;
// DataLoss (bytes were damaged on their way).
absl::Status FetchAll(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                      ReplicaConnection& connection, const OnCopyProgress& on_progress,
                      absl::FunctionRef<void(const std::string& text)> tell);

}  // namespace lodestar::replica
