// SPDX-License-Identifier: Apache-2.0

// MirroredFolders knows where the folders that a replica copies are on this machine, and lists
// their files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/file_system.h"
#include "server/durability/replica/file_change.h"
#include "server/durability/replica/summed_file_system.h"

namespace lodestar::replica {

struct FileEntry {
  MirroredPath path;
  bool is_directory = false;
  int64_t num_bytes = 0;  // only files have a size and a checksum
  uint32_t crc32c = 0;
};

class MirroredFolders {
 public:
  // If `checkpoint_dir` is empty, only journals are mirrored. The journals' folder may lie in
  // `checkpoint_dir`.
  MirroredFolders(std::string journal_dir, std::string checkpoint_dir);

  const std::string& journal_dir() const { return journal_dir_; }
  const std::string& checkpoint_dir() const { return checkpoint_dir_; }

  // Returns the folders of one shard's server: its journals and, for the coordinator, the
  // checkpoints.
  std::vector<MirroredPath> OfShard(int shard) const;

  // Returns where `path` is on this machine. The path may come from a peer, so it is checked.
  // Errors: InvalidArgument (the path leads out of the folders of the shard, or is no copied file).
  absl::StatusOr<std::string> Locate(int shard, const MirroredPath& path) const;
  // Does the same as Locate(), but also refuses the shard's folders themselves.
  absl::StatusOr<std::string> LocateBelow(int shard, const MirroredPath& path) const;
  // Returns the path of `path` on a replica, or nothing if the replica has no copy of it.
  std::optional<MirroredPath> Find(const std::string& path) const;

  // Lists all that is in the folders of a shard: directories before their contents, in the order of
  // names. Reads every file whose checksum `disk` does not know. Errors: those of the disk.
  absl::StatusOr<std::vector<FileEntry>> List(SummedFileSystem& disk, int shard) const;

 private:
  std::string Root(MirroredFolder folder) const;
  absl::Status ListBelow(SummedFileSystem& disk, const MirroredPath& path,
                         std::vector<FileEntry>& entries) const;

  const std::string journal_dir_;
  const std::string checkpoint_dir_;
};

}  // namespace lodestar::replica
