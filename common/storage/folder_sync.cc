// SPDX-License-Identifier: Apache-2.0

#include "common/storage/folder_sync.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/logging/logging.h"
#include "common/runtime/file_descriptor.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::storage {
namespace {

struct KnownFileSystem {
  int64_t type = 0;
  absl::string_view name;
};

// Types of file systems that cannot sync a folder, at least in some versions. Numbers are from
// linux/magic.h and fs/smb/client.
constexpr KnownFileSystem kSmb[] = {{0xff534d42, "cifs"}, {0xfe534d42, "smb3"}, {0x517b, "smbfs"}};
constexpr KnownFileSystem kOthers[] = {{0x786f4256, "vboxsf"},
                                       {0x65735546, "fuse"},
                                       {0x01021997, "9p"},
                                       {0x2011bab0, "exfat"},
                                       {0x4d44, "vfat"}};

const KnownFileSystem* FindFileSystem(absl::Span<const KnownFileSystem> systems, int64_t type) {
  // Only 32 bits are compared, because f_type is signed on some machines.
  const auto found = std::find_if(systems.begin(), systems.end(), [type](const auto& system) {
    return static_cast<uint32_t>(system.type) == static_cast<uint32_t>(type);
  });
  return found == systems.end() ? nullptr : &*found;
}

bool IsSmb(int64_t type) { return FindFileSystem(kSmb, type) != nullptr; }

std::string FileSystemName(int64_t type) {
  for (const absl::Span<const KnownFileSystem> systems :
       {absl::MakeConstSpan(kSmb), absl::MakeConstSpan(kOthers)}) {
    const KnownFileSystem* const found = FindFileSystem(systems, type);
    if (found != nullptr) return std::string(found->name);
  }
  return absl::StrFormat("of type %#x", static_cast<uint32_t>(type));
}

}  // namespace

absl::Status FsyncDirectory(const std::string& path) {
  const FileDescriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.is_open()) return ErrnoStatus(errno, "open directory", path);
  if (fsync(directory.get()) == 0) return absl::OkStatus();
  const int error_number = errno;
  struct statfs facts = {};
  if (fstatfs(directory.get(), &facts) != 0) facts.f_type = 0;
  RETURN_IF_ERROR(FolderSyncStatus(error_number, facts.f_type, path));
  logging::LogWarn(
      "{}: its file system, {}, cannot sync folders. New files survive a crash of this machine, "
      "but perhaps not a crash of the file server",
      path, FileSystemName(facts.f_type));
  return absl::OkStatus();
}

absl::Status FolderSyncStatus(int error_number, int64_t file_system, absl::string_view path) {
  // vfs_fsync() of Linux returns one of these if a file system cannot sync folders.
  const bool is_unable = error_number == EINVAL || error_number == EOPNOTSUPP;
  if (!is_unable) return ErrnoStatus(error_number, "sync directory", path);
  if (IsSmb(file_system)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot sync directory ", path, ": ", std::strerror(error_number),
                   "; its file system, ", FileSystemName(file_system),
                   ", cannot sync folders, so new files may be missing after a crash. Use a folder "
                   "on another file system, such as ext4, xfs or NFS"));
}

}  // namespace lodestar::storage
