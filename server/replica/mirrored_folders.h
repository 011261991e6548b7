// Where the folders that a replica has copies of are on this machine, and what is in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file_system.h"
#include "server/replica/file_change.h"
#include "server/replica/summed_file_system.h"

namespace lodestar {

struct FileEntry {
  MirroredPath path;
  bool is_directory = false;
  int64_t num_bytes = 0;  // of a file, like its checksum
  uint32_t crc32c = 0;
};

class MirroredFolders {
 public:
  // `checkpoint_dir` empty: of journals only. The journals may be in a folder in it.
  MirroredFolders(std::string journal_dir, std::string checkpoint_dir);

  const std::string& journal_dir() const { return journal_dir_; }
  const std::string& checkpoint_dir() const { return checkpoint_dir_; }

  // Of the server of one shard: its journals and, of the coordinator, the checkpoints.
  std::vector<MirroredPath> OfShard(int shard) const;

  // Where it is here. Errors: InvalidArgument for what leads out of the folders of the shard, or is
  // none of their copied files: a peer may have sent it.
  absl::StatusOr<std::string> Locate(int shard, const MirroredPath& path) const;
  // The same, and it is not one of those folders itself.
  absl::StatusOr<std::string> LocateBelow(int shard, const MirroredPath& path) const;
  // What `path` is to a replica; nothing if it has no copy of that.
  std::optional<MirroredPath> Find(const std::string& path) const;

  // All that is in the folders of a shard, directories before what they hold, in the order of their
  // names. Reads every file of which the disk does not know the checksum. Errors: those of the
  // disk.
  absl::StatusOr<std::vector<FileEntry>> List(SummedFileSystem& disk, int shard) const;

 private:
  std::string Root(MirroredFolder folder) const;
  absl::Status ListBelow(SummedFileSystem& disk, const MirroredPath& path,
                         std::vector<FileEntry>& entries) const;

  const std::string journal_dir_;
  const std::string checkpoint_dir_;
};

}  // namespace lodestar
