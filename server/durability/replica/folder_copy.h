// Makes the folders of a server and those of its replica equal again, whichever side lacks what the
// other has.
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

// It is reported now and then while files are copied.
struct CopyProgress {
  int64_t done_bytes = 0;
  int64_t all_bytes = 0;  // The bytes that are to be copied.
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

// Sends what the replica lacks, and returns once the replica has all on disk. Removes last what the
// replica has in addition. If the replica could be promoted before, it could be promoted at any
// time meanwhile. Errors: those of the lane and of the disk.
absl::Status SendDifferences(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                             const std::vector<FileEntry>& theirs, ReplicaLane& lane,
                             const OnCopyProgress& on_progress);

// Takes all that the replica has. There may be no journal here, except for what an interrupted
// fetch may have left. Checkpoints that the replica lacks stay beside, as *.abandoned; `tell` gets
// a line for each. The files are on disk when it returns. Errors: those of the connection and of
// the disk; DataLoss if bytes were damaged on their way.
absl::Status FetchAll(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                      ReplicaConnection& connection, const OnCopyProgress& on_progress,
                      absl::FunctionRef<void(const std::string& text)> tell);

}  // namespace lodestar::replica
