// Where the folders that a replica has copies of are on this machine, and what is in them.
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
  int64_t num_bytes = 0;  // Only files have a size and a checksum.
  uint32_t crc32c = 0;
};

class MirroredFolders {
 public:
  // If `checkpoint_dir` is empty, only journals are mirrored. The journals may be in a folder in
  // it.
  MirroredFolders(std::string journal_dir, std::string checkpoint_dir);

  const std::string& journal_dir() const { return journal_dir_; }
  const std::string& checkpoint_dir() const { return checkpoint_dir_; }

  // Returns the folders of the server of one shard: its journals and, for the coordinator, the
  // checkpoints.
  std::vector<MirroredPath> OfShard(int shard) const;

  // Returns where `path` is on this machine. Errors: InvalidArgument if it leads out of the folders
  // of the shard, or is none of their copied files: a peer may have sent it.
  absl::StatusOr<std::string> Locate(int shard, const MirroredPath& path) const;
  // Does the same as Locate(), and refuses those folders themselves.
  absl::StatusOr<std::string> LocateBelow(int shard, const MirroredPath& path) const;
  // Returns what `path` is called on a replica, or nothing if the replica has no copy of it.
  std::optional<MirroredPath> Find(const std::string& path) const;

  // Lists all that is in the folders of a shard, directories before what they hold, in the order of
  // their names. Reads every file whose checksum the disk does not know. Errors: those of the disk.
  absl::StatusOr<std::vector<FileEntry>> List(SummedFileSystem& disk, int shard) const;

 private:
  std::string Root(MirroredFolder folder) const;
  absl::Status ListBelow(SummedFileSystem& disk, const MirroredPath& path,
                         std::vector<FileEntry>& entries) const;

  const std::string journal_dir_;
  const std::string checkpoint_dir_;
};

}  // namespace lodestar::replica
