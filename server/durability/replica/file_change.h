// What a server does to its files, step by step, so that a replica can do it again.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace lodestar::replica {

// The folders that a replica has a copy of, wherever they are on either machine.
enum class MirroredFolder { kJournal, kCheckpoints };

// A file or directory in one of them.
struct MirroredPath {
  MirroredFolder folder = MirroredFolder::kJournal;
  std::string path;  // Such as "shard-0/00000001.journal". Empty means the folder itself.
  friend bool operator==(const MirroredPath&, const MirroredPath&) = default;
  friend auto operator<=>(const MirroredPath&, const MirroredPath&) = default;
};

// A number stands for an open file. No number is used twice.
struct CreateFileChange {
  uint64_t file = 0;
  MirroredPath path;
  // Whether appended bytes follow what the file has. Otherwise the file begins empty.
  bool goes_on = false;
};
struct AppendChange {
  uint64_t file = 0;
  std::string bytes;
};
struct SyncFileChange {
  uint64_t file = 0;
};
struct CloseFileChange {
  uint64_t file = 0;
};
struct CreateDirectoriesChange {
  MirroredPath path;
};
struct RenameChange {
  MirroredPath from;
  MirroredPath to;
};
struct RemoveChange {
  MirroredPath path;  // It goes with all that is in it.
};
struct SyncDirectoryChange {
  MirroredPath path;
};
// From here on the replica has all that the server has.
struct CopyIsWholeChange {};

using FileChange = std::variant<CreateFileChange, AppendChange, SyncFileChange, CloseFileChange,
                                CreateDirectoriesChange, RenameChange, RemoveChange,
                                SyncDirectoryChange, CopyIsWholeChange>;

}  // namespace lodestar::replica
