#include "server/checkpoint/checkpoint_folder.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file_io.h"
#include "common/status_macros.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace lodestar {
namespace {

absl::Status WriteProbe(const std::string& path) {
  ASSIGN_OR_RETURN(SequentialFileWriter file, SequentialFileWriter::Create(path));
  RETURN_IF_ERROR(file.Append("lodestar"));
  return file.Finish(/*sync=*/true);
}

absl::Status WriteAndRename(const std::string& folder, const std::string& probe) {
  std::error_code error;
  if (!std::filesystem::create_directory(probe, error)) {
    return ErrnoStatus(error.value(), "create directory", probe);
  }
  RETURN_IF_ERROR(WriteProbe(absl::StrCat(probe, "/file")));
  RETURN_IF_ERROR(RenameDirectory(probe, absl::StrCat(probe, "-renamed")));
  return FsyncDirectory(folder);
}

int64_t FreeBytes(const std::string& folder) {
  struct statvfs info;
  // Some file systems do not tell: then every write decides for itself.
  if (statvfs(folder.c_str(), &info) != 0 || info.f_blocks == 0) {
    return std::numeric_limits<int64_t>::max();
  }
  return static_cast<int64_t>(info.f_bavail * info.f_frsize);
}

}  // namespace

absl::StatusOr<std::string> TryCheckpointFolder(const std::string& folder, int64_t checkpoint_bytes,
                                                int num_checkpoints) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return ErrnoStatus(error.value(), "create directory", folder);
  const std::string probe = absl::StrCat(folder, "/.tried-", getpid());
  const absl::Status tried = WriteAndRename(folder, probe);
  RemoveDirectory(probe);
  RemoveDirectory(absl::StrCat(probe, "-renamed"));
  RETURN_IF_ERROR(tried);
  if (checkpoint_bytes <= 0) return "";
  const int64_t free_bytes = FreeBytes(folder);
  if (free_bytes < checkpoint_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(folder, " has ", free_bytes, " bytes free, one checkpoint of this job takes ",
                     checkpoint_bytes, "; make room, or give another folder"));
  }
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> there, ListWholeCheckpoints(folder));
  const int64_t to_come = num_checkpoints - static_cast<int64_t>(there.size());
  const int64_t have_room = free_bytes / checkpoint_bytes;
  if (have_room >= to_come) return "";
  return absl::StrCat(folder, " has room for ", have_room, " more checkpoints of ",
                      checkpoint_bytes, " bytes, ", to_come,
                      " are to come: make room, or lower --checkpoint_keep");
}

}  // namespace lodestar
