#include "server/checkpoint/checkpoint_publisher.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file_io.h"
#include "common/status_macros.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/checkpoint_reader.h"

namespace lodestar {
namespace {

absl::Status WriteManifest(const std::string& directory, const Manifest& manifest) {
  ASSIGN_OR_RETURN(SequentialFileWriter file,
                   SequentialFileWriter::Create(absl::StrCat(directory, "/", kManifestName)));
  RETURN_IF_ERROR(file.Append(FormatManifest(manifest)));
  RETURN_IF_ERROR(file.Finish(/*sync=*/true));
  return FsyncDirectory(directory);
}

// From here on a crash leaves either the old checkpoint of this round or the new one.
absl::Status MoveIntoPlace(const std::string& directory, const std::string& final_path) {
  const std::string replaced = absl::StrCat(final_path, kReplacedSuffix);
  std::error_code ignored;
  if (std::filesystem::exists(final_path, ignored)) {
    RemoveDirectory(replaced);
    RETURN_IF_ERROR(RenameDirectory(final_path, replaced));
  }
  RETURN_IF_ERROR(RenameDirectory(directory, final_path));
  RETURN_IF_ERROR(FsyncDirectory(std::filesystem::path(final_path).parent_path().string()));
  RemoveDirectory(replaced);
  return absl::OkStatus();
}

absl::Status RemoveOld(const std::string& root, Round newest, int keep) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(root));
  int kept = 1;  // the newest
  for (const CheckpointEntry& entry : entries) {
    if (entry.suffix.empty() && entry.round < newest && ++kept > keep) RemoveDirectory(entry.path);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> BeginCheckpoint(const std::string& root, Round round) {
  std::error_code error;
  std::filesystem::create_directories(root, error);
  if (error) return ErrnoStatus(error.value(), "create directory", root);
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(root));
  for (const CheckpointEntry& entry : entries) {
    if (entry.suffix == kTemporarySuffix) RemoveDirectory(entry.path);
  }
  std::string directory = absl::StrCat(root, "/", CheckpointName(round), kTemporarySuffix);
  if (!std::filesystem::create_directory(directory, error) && !error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot remove ", directory, ", left over from an earlier attempt"));
  }
  if (error) return ErrnoStatus(error.value(), "create directory", directory);
  return directory;
}

absl::StatusOr<std::string> PublishCheckpoint(const std::string& directory,
                                              const Manifest& manifest, int keep) {
  RETURN_IF_ERROR(WriteManifest(directory, manifest));
  RETURN_IF_ERROR(VerifyCheckpoint(directory).status());
  const std::string root = std::filesystem::path(directory).parent_path().string();
  std::string final_path = absl::StrCat(root, "/", CheckpointName(manifest.round));
  RETURN_IF_ERROR(MoveIntoPlace(directory, final_path));
  RETURN_IF_ERROR(SetAsideNewer(root, manifest.round));
  RETURN_IF_ERROR(RemoveOld(root, manifest.round, keep));
  return final_path;
}

absl::Status SetAsideNewer(const std::string& root, Round newest) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(root));
  for (const CheckpointEntry& entry : entries) {
    if (!entry.suffix.empty() || entry.round <= newest) continue;
    // A name that lies: no future, and not ours to rename.
    if (WrittenRound(entry) <= newest) continue;
    RETURN_IF_ERROR(RenameDirectory(entry.path, absl::StrCat(entry.path, kAbandonedSuffix)));
  }
  return absl::OkStatus();
}

void DiscardCheckpoint(const std::string& directory) { RemoveDirectory(directory); }

}  // namespace lodestar
