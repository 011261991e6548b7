#include "server/checkpoint/checkpoint_publisher.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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

bool IsSame(const std::string& path, const std::string& other) {
  std::error_code ignored;
  return !other.empty() && std::filesystem::equivalent(path, other, ignored);
}

}  // namespace

absl::StatusOr<std::string> PublishCheckpoint(const std::string& directory,
                                              const Manifest& manifest,
                                              absl::FunctionRef<absl::Status()> may_move) {
  RETURN_IF_ERROR(WriteManifest(directory, manifest));
  RETURN_IF_ERROR(VerifyCheckpoint(directory).status());
  const std::string root = std::filesystem::path(directory).parent_path().string();
  std::string final_path = absl::StrCat(root, "/", CheckpointName(manifest.round));
  RETURN_IF_ERROR(may_move());
  RETURN_IF_ERROR(MoveIntoPlace(directory, final_path));
  return final_path;
}

absl::Status SetAsideNewer(const std::string& root, Round newest, const std::string& spared) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(root));
  std::vector<CheckpointEntry> future, earlier;
  for (const CheckpointEntry& entry : entries) {
    if (entry.suffix == kTemporarySuffix || IsSame(entry.path, spared)) continue;
    if (entry.suffix == kAbandonedSuffix) {
      earlier.push_back(entry);
      continue;
    }
    // What counts later is not the name, either.
    if (WrittenRound(entry) > newest) future.push_back(entry);
  }
  if (future.empty()) return absl::OkStatus();
  for (const CheckpointEntry& entry : earlier) RemoveDirectory(entry.path);
  for (const CheckpointEntry& entry : future) {
    const std::string aside =
        absl::StrCat(absl::StripSuffix(entry.path, entry.suffix), kAbandonedSuffix);
    std::error_code ignored;
    if (entry.suffix == kReplacedSuffix && std::filesystem::exists(aside, ignored)) {
      RemoveDirectory(entry.path);
    } else {
      RETURN_IF_ERROR(RenameDirectory(entry.path, aside));
    }
  }
  return FsyncDirectory(root);
}

absl::Status RemoveOld(const std::string& root, Round newest, int keep, const std::string& spared) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(root));
  int kept = 1;  // the newest
  for (const CheckpointEntry& entry : entries) {
    if (!entry.suffix.empty() || entry.round >= newest || IsSame(entry.path, spared)) continue;
    if (++kept > keep) RemoveDirectory(entry.path);
  }
  return absl::OkStatus();
}

void DiscardCheckpoint(const std::string& directory) { RemoveDirectory(directory); }

absl::Status RemoveUnfinished(const std::string& root) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(root));
  for (const CheckpointEntry& entry : entries) {
    if (entry.suffix == kTemporarySuffix) RemoveDirectory(entry.path);
  }
  return absl::OkStatus();
}

}  // namespace lodestar
