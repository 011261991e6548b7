// SPDX-License-Identifier: Apache-2.0

// MirroredFolders has the paths, on this machine, of the folders that a replica copies. It also
// lists their files.
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
  // Empty `checkpoint_dir` means that only journals are copied. `journal_dir` may lie in it.
  MirroredFolders(std::string journal_dir, std::string checkpoint_dir);

  const std::string& journal_dir() const { return journal_dir_; }
  const std::string& checkpoint_dir() const { return checkpoint_dir_; }

  // Returns the folders of the server of `shard`: its journals and, for shard 0, the checkpoints.
  std::vector<MirroredPath> OfShard(int shard) const;

  // Returns the path of `path` on this machine. Checks it, because it may come from a peer. Errors:
  // InvalidArgument (it is outside the shard's folders, or is not a copied file).
  absl::StatusOr<std::string> Locate(int shard, const MirroredPath& path) const;
  // Does the same as Locate(), but also refuses the shard's folders themselves.
  absl::StatusOr<std::string> LocateBelow(int shard, const MirroredPath& path) const;
  // Returns where a replica has the file `path` of this machine. Returns nothing if it is not
  // copied.
  std::optional<MirroredPath> Find(const std::string& path) const;

  // Lists the contents of a shard's folders. A directory precedes its contents, and names are
  // sorted. Reads each file whose checksum is not known to `disk`. Errors: those of the disk.
  absl::StatusOr<std::vector<FileEntry>> List(SummedFileSystem& disk, int shard) const;

 private:
  std::string Root(MirroredFolder folder) const;
  absl::Status ListBelow(SummedFileSystem& disk, const MirroredPath& path,
                         std::vector<FileEntry>& entries) const;

  const std::string journal_dir_;
  const std::string checkpoint_dir_;
};

}  // namespace lodestar::replica
