// SPDX-License-Identifier: Apache-2.0

#include "server/checkpoint/checkpoint_folder.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::checkpoint {
namespace {

// Creates the folder and all folders above it, and syncs them. Without the syncs, a crash of the
// machine could remove the folder, with all checkpoints that were published in it.
absl::Status CreateForGood(storage::FileSystem& file_system, const std::string& folder) {
  std::vector<std::string> upwards = {folder};
  while (DirectoryOf(upwards.back()) != upwards.back()) {
    upwards.push_back(DirectoryOf(upwards.back()));
  }
  const auto there = std::find_if(upwards.begin(), upwards.end(), [&](const std::string& path) {
    return file_system.Exists(path);
  });
  RETURN_IF_ERROR(file_system.CreateDirectories(folder));
  for (auto above = upwards.begin() + 1; above < upwards.end(); ++above) {
    const absl::Status synced = file_system.SyncDirectory(*above);
    // If `above` was there before, an earlier start may have created it and then ended before it
    // synced, so it is synced now. In this case, errors that show that this process cannot sync
    // `above` are ignored.
    const bool cannot_sync = absl::IsPermissionDenied(synced) || absl::IsInvalidArgument(synced) ||
                             absl::IsUnimplemented(synced) || absl::IsFailedPrecondition(synced);
    if (above <= there || !cannot_sync) RETURN_IF_ERROR(synced);
  }
  return absl::OkStatus();
}

absl::Status WriteProbe(storage::FileSystem& file_system, const std::string& path) {
  ASSIGN_OR_RETURN(storage::SequentialFileWriter file,
                   storage::SequentialFileWriter::Create(file_system, path));
  RETURN_IF_ERROR(file.Append("lodestar"));
  return file.Finish(/*sync=*/true);
}

absl::Status WriteAndRename(storage::FileSystem& file_system, const std::string& folder,
                            const std::string& probe) {
  // An earlier process may have been killed during its test, and have left these names. In
  // containers, process numbers often repeat.
  RETURN_IF_ERROR(file_system.RemoveAll(absl::StrCat(probe, "-renamed")));
  RETURN_IF_ERROR(file_system.CreateDirectories(probe));
  RETURN_IF_ERROR(WriteProbe(file_system, absl::StrCat(probe, "/file")));
  RETURN_IF_ERROR(file_system.Rename(probe, absl::StrCat(probe, "-renamed")));
  return file_system.SyncDirectory(folder);
}

}  // namespace

absl::StatusOr<std::string> TryCheckpointFolder(storage::FileSystem& file_system,
                                                const std::string& folder, int64_t checkpoint_bytes,
                                                int num_checkpoints) {
  const auto explain = [&](const absl::Status& status) {
    if (!absl::IsResourceExhausted(status)) return status;
    const std::string need =
        checkpoint_bytes > 0
            ? absl::StrCat("; one checkpoint of this job takes ", checkpoint_bytes, " bytes")
            : "";
    return absl::ResourceExhaustedError(
        absl::StrCat(status.message(), need, "; make room, or give another folder"));
  };
  RETURN_IF_ERROR(checkpoints::CheckIsOutsideCheckpoints(file_system, folder));
  RETURN_IF_ERROR(explain(CreateForGood(file_system, folder)));
  const std::string probe = absl::StrCat(folder, "/.tried-", getpid());
  const absl::Status tried = WriteAndRename(file_system, folder, probe);
  checkpoints::RemoveDirectory(file_system, probe).IgnoreError();
  checkpoints::RemoveDirectory(file_system, absl::StrCat(probe, "-renamed")).IgnoreError();
  RETURN_IF_ERROR(explain(tried));
  if (checkpoint_bytes <= 0) return "";
  // Some file systems do not report free space. Then a full disk shows only when a file is written.
  const int64_t free_bytes =
      file_system.FreeBytes(folder).value_or(std::numeric_limits<int64_t>::max());
  if (free_bytes < checkpoint_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        folder, " has ", free_bytes, " bytes free, but one checkpoint of this job takes ",
        checkpoint_bytes, "; make room, or give another folder"));
  }
  ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> there,
                   checkpoints::ListWholeCheckpoints(file_system, folder));
  const int64_t to_come = num_checkpoints - static_cast<int64_t>(there.size());
  const int64_t have_room = free_bytes / checkpoint_bytes;
  if (have_room >= to_come) return "";
  return absl::StrCat(folder, " has room for ", have_room, " more checkpoints of ",
                      checkpoint_bytes, " bytes, but ", to_come,
                      " more will be kept; make room, or lower --checkpoint_keep");
}

}  // namespace lodestar::checkpoint
