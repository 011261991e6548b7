// SPDX-License-Identifier: Apache-2.0

// A FileChange is one change to a server's files. A replica makes the same change to its copies.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace lodestar::replica {

// The folders that a replica copies. Their paths may differ between server and replica.
enum class MirroredFolder { kJournal, kCheckpoints };

// A file or directory in a mirrored folder.
struct MirroredPath {
  MirroredFolder folder = MirroredFolder::kJournal;
  std::string path;  // such as "shard-0/00000001.journal"; empty means the folder itself
  friend bool operator==(const MirroredPath&, const MirroredPath&) = default;
  friend auto operator<=>(const MirroredPath&, const MirroredPath&) = default;
};

// Opens a file. Later changes name the file by the number `file`. No number is used twice.
struct CreateFileChange {
  uint64_t file = 0;
  MirroredPath path;
  // True means that new bytes are appended to the existing file. False means that the file is first
  // emptied.
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
  MirroredPath path;  // removed with all that is in it
};
struct SyncDirectoryChange {
  MirroredPath path;
};
// Says that the replica now has everything that the server has.
struct CopyIsWholeChange {};

using FileChange = std::variant<CreateFileChange, AppendChange, SyncFileChange, CloseFileChange,
                                CreateDirectoriesChange, RenameChange, RemoveChange,
                                SyncDirectoryChange, CopyIsWholeChange>;

}  // namespace lodestar::replica
