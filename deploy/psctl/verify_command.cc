// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/verify_command.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/runtime/bytes_text.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::psctl {
namespace {

// Returns the checkpoints at `path`. If `path` itself is a checkpoint, its entry has no suffix,
// even if the name of the folder has one.
absl::StatusOr<std::vector<checkpoints::CheckpointEntry>> CheckpointsAt(
    storage::FileSystem& file_system, const std::string& path) {
  if (file_system.Exists(absl::StrCat(path, "/", checkpoints::kManifestName))) {
    return std::vector<checkpoints::CheckpointEntry>{{Round(), /*suffix=*/"", path}};
  }
  ASSIGN_OR_RETURN(std::vector<checkpoints::CheckpointEntry> entries,
                   checkpoints::ListCheckpoints(file_system, path));
  if (!entries.empty()) return entries;
  if (!file_system.Exists(path)) RETURN_IF_ERROR(CheckIsThere(path));
  return absl::NotFoundError(absl::StrCat(
      path, " is neither a checkpoint (it has no ", checkpoints::kManifestName,
      ") nor a folder of checkpoints (it has no round-...); give the path of one of these"));
}

// Returns true if the folder of `path` still has an entry of this name. The entry may be a link to
// a disk that is not mounted.
bool IsListed(storage::FileSystem& file_system, const std::string& path) {
  const auto entries = checkpoints::ListCheckpoints(file_system, DirectoryOf(path));
  return !entries.ok() ||
         std::any_of(entries->begin(), entries->end(),
                     [&](const checkpoints::CheckpointEntry& entry) { return entry.path == path; });
}

std::string WholeText(const checkpoints::Manifest& manifest) {
  int64_t num_bytes = 0;
  int num_files = 0;
  for (const checkpoints::ShardManifest& shard : manifest.shards) {
    for (const checkpoints::CheckpointFile* file : {&shard.weights, &shard.optimizer}) {
      if (file->name.empty()) continue;
      num_bytes += file->num_bytes;
      ++num_files;
    }
  }
  return absl::StrCat("whole: round ", manifest.round.value(), ", ", BytesText(num_bytes), " in ",
                      num_files, num_files == 1 ? " file" : " files");
}

}  // namespace

absl::Status VerifyCheckpoints(storage::FileSystem& file_system,
                               absl::Span<const std::string> paths,
                               absl::FunctionRef<absl::Status(absl::string_view line)> say) {
  int num_read = 0;
  int num_damaged = 0;
  for (const std::string& given : paths) {
    const std::string path(absl::StripSuffix(given, "/"));
    ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                     CheckpointsAt(file_system, path));
    for (const checkpoints::CheckpointEntry& entry : entries) {
      if (entry.suffix == checkpoints::kTemporarySuffix) {
        RETURN_IF_ERROR(say(absl::StrCat(entry.path, "  not finished, servers never use it")));
        continue;
      }
      const absl::StatusOr<checkpoints::Manifest> manifest =
          checkpoints::VerifyCheckpoint(file_system, entry.path);
      const bool is_absent = !manifest.ok() && !file_system.Exists(entry.path);
      if (is_absent && !IsListed(file_system, entry.path)) {
        RETURN_IF_ERROR(say(absl::StrCat(entry.path, "  was removed while psctl read the folder")));
        continue;
      }
      ++num_read;
      if (!manifest.ok()) ++num_damaged;
      if (is_absent) {
        RETURN_IF_ERROR(say(absl::StrCat(
            entry.path, "  NOT READ: it is a link to a folder that is not there; mount its disk")));
        continue;
      }
      RETURN_IF_ERROR(say(absl::StrCat(
          entry.path, "  ",
          manifest.ok() ? WholeText(*manifest)
                        : absl::StrCat(checkpoints::MayBeWhole(manifest.status()) ? "NOT READ: "
                                                                                  : "DAMAGED: ",
                                       manifest.status().message()))));
    }
  }
  if (num_damaged == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(num_damaged, " of ", num_read, " checkpoints are damaged or could not be read"));
}

}  // namespace lodestar::psctl
