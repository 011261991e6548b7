// SPDX-License-Identifier: Apache-2.0

#include "server/host/journal_base.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::host {
namespace {

bool IsInside(absl::string_view path, absl::string_view folder) {
  return !folder.empty() && absl::StartsWith(path, absl::StrCat(folder, "/"));
}

absl::string_view NameOf(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

bool WasInRun(const std::string& path, const JournalBase& base) {
  return !base.run_folder.empty() && DirectoryOf(path) == base.run_folder;
}

// Returns true if the journal lies in the run's folder, so that it is moved and copied with the
// run.
bool MovesWithRun(const RunFolders& folders) {
  return IsInside(folders.journal_dir, folders.checkpoint_dir);
}

// Returns the places where the checkpoint may be, the likeliest first.
std::vector<std::string> PlacesOf(const std::string& path, const JournalBase& base,
                                  const RunFolders& folders) {
  std::vector<std::string> places;
  const auto add = [&places](std::string place) {
    if (std::count(places.begin(), places.end(), place) == 0) places.push_back(std::move(place));
  };
  const bool was_in_run = WasInRun(path, base);
  // A checkpoint of the same name in the folders of the run may be a different one. So these
  // folders are searched only if the checkpoint was in the run's folder, or if the checksum can be
  // compared.
  if (was_in_run || base.checksum.has_value()) {
    for (const std::string& folder : {folders.checkpoint_dir, folders.fallback_dir}) {
      if (!folder.empty()) add(absl::StrCat(folder, "/", NameOf(path)));
    }
  }
  if (!was_in_run || folders.checkpoint_dir.empty()) add(path);
  return places;
}

absl::StatusOr<shards::WeightsSource> FindCheckpoint(storage::FileSystem& file_system,
                                                     const shards::CheckpointSource& checkpoint,
                                                     const JournalBase& base,
                                                     const RunFolders& folders) {
  const std::vector<std::string> places = PlacesOf(checkpoint.directory, base, folders);
  // If a process ends while it tries to rename the checkpoint, the checkpoint may have this suffix.
  std::vector<std::string> paths = places;
  for (const std::string& place : places) {
    if (base.checksum.has_value())
      paths.push_back(absl::StrCat(place, checkpoints::kReplacedSuffix));
  }
  std::vector<std::string> others;  // checkpoints of the same name
  for (const std::string& path : paths) {
    if (!file_system.Exists(absl::StrCat(path, "/", checkpoints::kManifestName))) continue;
    ASSIGN_OR_RETURN(const checkpoints::Manifest manifest,
                     checkpoints::ReadManifest(file_system, path));
    if (base.checksum.has_value() && ContentChecksum(manifest) != *base.checksum) {
      others.push_back(path);
      continue;
    }
    RETURN_IF_ERROR(checkpoints::VerifyCheckpoint(file_system, path).status());
    shards::CheckpointSource found = checkpoint;
    found.directory = path;
    return found;
  }
  const std::string text =
      absl::StrCat("the journal continues from checkpoint ", checkpoint.directory,
                   ", which is missing at ", absl::StrJoin(places, " and at "),
                   others.empty() ? ""
                                  : absl::StrCat(" (", absl::StrJoin(others, ", "),
                                                 " has the same name but other contents)"));
  const bool is_in_run = WasInRun(checkpoint.directory, base);
  ASSIGN_OR_RETURN(
      const std::vector<checkpoints::CheckpointEntry> there,
      checkpoints::ListWholeCheckpoints(
          file_system, DirectoryOf(is_in_run ? places.front() : checkpoint.directory)));
  if (!there.empty()) return absl::NotFoundError(text);
  return absl::UnavailableError(absl::StrCat(
      text, ". Mount its disk, or give --checkpoint_dir the folder that has it, and start again"));
}

}  // namespace

uint32_t ContentChecksum(const checkpoints::Manifest& manifest) {
  std::string contents = absl::StrCat(manifest.round.value());
  for (const checkpoints::ShardManifest& shard : manifest.shards) {
    for (const checkpoints::CheckpointFile& file : {shard.weights, shard.optimizer}) {
      absl::StrAppend(&contents, " ", file.name, " ", file.num_bytes, " ", file.crc32c);
    }
  }
  return crc32c::Crc32c(contents.data(), contents.size());
}

std::optional<uint32_t> ChecksumOf(storage::FileSystem& file_system,
                                   const shards::WeightsSource& source) {
  const auto* checkpoint = std::get_if<shards::CheckpointSource>(&source);
  if (checkpoint == nullptr) return std::nullopt;
  const absl::StatusOr<checkpoints::Manifest> manifest =
      checkpoints::ReadManifest(file_system, checkpoint->directory);
  if (!manifest.ok()) return std::nullopt;
  return ContentChecksum(*manifest);
}

std::string PathAfterMove(const std::string& path, const std::string& from, const std::string& to) {
  if (to.empty() || !IsInside(path, from)) return path;
  return absl::StrCat(to, absl::string_view(path).substr(from.size()));
}

absl::StatusOr<bool> IsJournalOfRun(storage::FileSystem& file_system, const JournalBase& base,
                                    const RunFolders& folders) {
  const std::string& named = base.run_folder;
  if (named.empty() || folders.checkpoint_dir.empty() || MovesWithRun(folders)) return true;
  if (file_system.AreSame(named, folders.checkpoint_dir) || !file_system.Exists(named)) return true;
  const auto* checkpoint = std::get_if<shards::CheckpointSource>(&base.source);
  if (checkpoint != nullptr) {
    // Two runs with the same settings and data begin with equal checkpoints. So a copy in this
    // run's folder counts only if the checkpoint is no longer in the folder that the journal names.
    const absl::StatusOr<checkpoints::Manifest> manifest =
        checkpoints::ReadManifest(file_system, checkpoint->directory);
    if (manifest.ok() && manifest->journal.is_complete) return false;
    if (!manifest.ok() && FindCheckpoint(file_system, *checkpoint, base, folders).ok()) return true;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the journal in --journal_dir=", folders.journal_dir, " belongs to the run in ", named,
      ", but --checkpoint_dir is ", folders.checkpoint_dir,
      ". The journal may have rounds that are in no checkpoint, so nothing was changed. For a run "
      "in ",
      folders.checkpoint_dir,
      ", give another --journal_dir. To continue the run of the journal, give --checkpoint_dir=",
      named, ". If that run was copied to ", folders.checkpoint_dir,
      ", rename the folder that it was copied from"));
}

absl::StatusOr<shards::WeightsSource> FindBase(storage::FileSystem& file_system,
                                               const JournalBase& base, const RunFolders& folders) {
  if (const auto* checkpoint = std::get_if<shards::CheckpointSource>(&base.source)) {
    return FindCheckpoint(file_system, *checkpoint, base, folders);
  }
  const auto* file = std::get_if<shards::SafetensorsSource>(&base.source);
  if (file == nullptr) return base.source;
  const std::string moved = PathAfterMove(file->path, base.run_folder, folders.checkpoint_dir);
  if (file_system.Exists(moved)) return shards::SafetensorsSource{moved};
  if (!MovesWithRun(folders) && file_system.Exists(file->path)) return base.source;
  return absl::UnavailableError(absl::StrCat(
      "the journal continues from the weights of ", file->path, ", but that file is missing",
      moved == file->path ? "" : absl::StrCat(", and so is ", moved),
      ". Mount its disk, or put the file back, and start again"));
}

}  // namespace lodestar::host
