// SPDX-License-Identifier: Apache-2.0

// A FileChange is one change that a server makes to its files, so that a replica can make the same
// change.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace lodestar::replica {

// The folders that a replica has a copy of. Their paths may differ on the two machines.
enum class MirroredFolder { kJournal, kCheckpoints };

// A file or directory in a mirrored folder.
struct MirroredPath {
  MirroredFolder folder = MirroredFolder::kJournal;
  std::string path;  // such as "shard-0/00000001.journal"; empty means the folder itself
  friend bool operator==(const MirroredPath&, const MirroredPath&) = default;
  friend auto operator<=>(const MirroredPath&, const MirroredPath&) = default;
};

// A number stands for an open file. No number is used twice.
struct CreateFileChange {
  uint64_t file = 0;
  MirroredPath path;
  // True means that appended bytes follow the bytes that the file already has. False means that the
  // file is emptied first.
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
// Says that from here on the replica has all that the server has.
struct CopyIsWholeChange {};

using FileChange = std::variant<CreateFileChange, AppendChange, SyncFileChange, CloseFileChange,
                                CreateDirectoriesChange, RenameChange, RemoveChange,
                                SyncDirectoryChange, CopyIsWholeChange>;

}  // namespace lodestar::replica
