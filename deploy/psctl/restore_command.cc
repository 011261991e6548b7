// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/restore_command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_copy.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_lock.h"

namespace lodestar::psctl {
namespace {

// Checks that servers with --checkpoint_dir=`folder` would continue from the checkpoint of `round`.
// Another checkpoint or a journal in the folder must not have later rounds.
absl::Status CheckNothingElseCounts(storage::FileSystem& file_system, const std::string& folder,
                                    Round round) {
  ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> there,
                   checkpoints::ListWholeCheckpoints(file_system, folder));
  for (const checkpoints::CheckpointEntry& entry : there) {
    if (checkpoints::WrittenRound(file_system, entry) <= round) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(entry.path, " is later than round ", round.value(),
                     ", and servers would continue from it. Move it away. Or start the servers "
                     "with --resume=PATH instead of psctl restore"));
  }
  const std::string journal = absl::StrCat(folder, "/", checkpoints::kJournalFolder);
  ASSIGN_OR_RETURN(const std::vector<std::string> journals, file_system.List(journal));
  if (journals.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      journal,
      " exists, and servers with --durability=journal would continue from it; move it away"));
}

}  // namespace

absl::StatusOr<std::string> RestoreCheckpoint(storage::FileSystem& file_system,
                                              const std::string& path, const std::string& folder) {
  ASSIGN_OR_RETURN(const checkpoints::Manifest manifest,
                   checkpoints::VerifyCheckpoint(file_system, path));
  RETURN_IF_ERROR(checkpoints::CheckIsOutsideCheckpoints(file_system, folder));
  RETURN_IF_ERROR(file_system.CreateDirectories(folder));
  ASSIGN_OR_RETURN(const std::unique_ptr<storage::FolderLock> lock,
                   storage::FolderLock::Take(folder, storage::NewFolderClaim(), {}));
  RETURN_IF_ERROR(CheckNothingElseCounts(file_system, folder, manifest.round));
  ASSIGN_OR_RETURN(std::string copy, checkpoints::CopyCheckpoint(file_system, path, folder));
  // Servers must not look for a journal with later rounds, so this says that the checkpoint is
  // complete without a journal.
  RETURN_IF_ERROR(checkpoints::MarkComplete(file_system, copy));
  return copy;
}

absl::Status GiveToOwnerOf(const std::string& folder, const std::string& path) {
  struct stat owner;
  if (geteuid() != 0) return absl::OkStatus();
  if (stat(folder.c_str(), &owner) != 0) return ErrnoStatus(errno, "examine", folder);
  ASSIGN_OR_RETURN(std::vector<std::string> given, storage::FileSystem::Real().List(path));
  for (std::string& name : given) name = absl::StrCat(path, "/", name);
  given.push_back(path);
  given.push_back(absl::StrCat(folder, "/", storage::kFolderLockName));
  for (const std::string& each : given) {
    if (lchown(each.c_str(), owner.st_uid, owner.st_gid) != 0) {
      return ErrnoStatus(errno, "change the owner of", each);
    }
  }
  return absl::OkStatus();
}

}  // namespace lodestar::psctl
