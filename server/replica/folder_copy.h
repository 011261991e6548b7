// Makes the folders of a server and those of its replica equal again, whoever of the two lacks what
// the other has.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/replica/mirrored_folders.h"
#include "server/replica/replica_connection.h"
#include "server/replica/summed_file_system.h"

namespace lodestar {

// Told now and then while files are copied.
struct CopyProgress {
  int64_t done_bytes = 0;
  int64_t all_bytes = 0;  // that are to be copied
};
using OnCopyProgress = std::function<void(const CopyProgress& progress)>;

// Takes the checkpoints that the replica has and this machine has lost: those that are not here
// under any name, unless all that are here are newer, and those that do not verify here. `tell`
// gets a line for each. What does not verify there either stays as it is. Errors: those of the
// connection and of the disk.
absl::Status FetchLostCheckpoints(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                                  const std::vector<FileEntry>& theirs,
                                  ReplicaConnection& connection, const OnCopyProgress& on_progress,
                                  absl::FunctionRef<void(const std::string& text)> tell);

// Sends what the replica lacks, in an order in which it could be promoted at any time if it could
// before: what it has in addition goes last. Returns once the replica has all on disk. Errors:
// those of the lane and of the disk.
absl::Status SendDifferences(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                             const std::vector<FileEntry>& theirs, ReplicaLane& lane,
                             const OnCopyProgress& on_progress);

// Takes all that the replica has. Requires: there is no journal here, but for what a fetch that was
// cut short may have left. Checkpoints that are not the replica's stay beside, as *.abandoned;
// `tell` gets a line for each. On disk when it returns. Errors: those of the connection and of the
// disk; DataLoss if bytes were damaged on their way.
absl::Status FetchAll(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                      ReplicaConnection& connection, const OnCopyProgress& on_progress,
                      absl::FunctionRef<void(const std::string& text)> tell);

}  // namespace lodestar
