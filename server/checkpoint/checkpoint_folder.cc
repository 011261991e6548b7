#include "server/checkpoint/checkpoint_folder.h"

#include <unistd.h>

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/checkpoint/checkpoint_directory.h"

namespace lodestar {
namespace {

absl::Status WriteProbe(FileSystem& file_system, const std::string& path) {
  ASSIGN_OR_RETURN(SequentialFileWriter file, SequentialFileWriter::Create(file_system, path));
  RETURN_IF_ERROR(file.Append("lodestar"));
  return file.Finish(/*sync=*/true);
}

absl::Status WriteAndRename(FileSystem& file_system, const std::string& folder,
                            const std::string& probe) {
  RETURN_IF_ERROR(file_system.CreateDirectories(probe));
  RETURN_IF_ERROR(WriteProbe(file_system, absl::StrCat(probe, "/file")));
  RETURN_IF_ERROR(file_system.Rename(probe, absl::StrCat(probe, "-renamed")));
  return file_system.SyncDirectory(folder);
}

}  // namespace

absl::StatusOr<std::string> TryCheckpointFolder(FileSystem& file_system, const std::string& folder,
                                                int64_t checkpoint_bytes, int num_checkpoints) {
  RETURN_IF_ERROR(file_system.CreateDirectories(folder));
  const std::string probe = absl::StrCat(folder, "/.tried-", getpid());
  const absl::Status tried = WriteAndRename(file_system, folder, probe);
  RemoveDirectory(file_system, probe);
  RemoveDirectory(file_system, absl::StrCat(probe, "-renamed"));
  RETURN_IF_ERROR(tried);
  if (checkpoint_bytes <= 0) return "";
  // Some file systems do not tell: then every write decides for itself.
  const int64_t free_bytes =
      file_system.FreeBytes(folder).value_or(std::numeric_limits<int64_t>::max());
  if (free_bytes < checkpoint_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(folder, " has ", free_bytes, " bytes free, one checkpoint of this job takes ",
                     checkpoint_bytes, "; make room, or give another folder"));
  }
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> there,
                   ListWholeCheckpoints(file_system, folder));
  const int64_t to_come = num_checkpoints - static_cast<int64_t>(there.size());
  const int64_t have_room = free_bytes / checkpoint_bytes;
  if (have_room >= to_come) return "";
  return absl::StrCat(folder, " has room for ", have_room, " more checkpoints of ",
                      checkpoint_bytes, " bytes, ", to_come,
                      " are to come: make room, or lower --checkpoint_keep");
}

}  // namespace lodestar
