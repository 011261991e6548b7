// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/checkpoint_copy.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::checkpoints {
namespace {

// Returns the names of the checkpoint's files. The manifest is the last, because a folder without a
// manifest is not a checkpoint.
std::vector<std::string> FilesOf(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const ShardManifest& shard : manifest.shards) {
    names.push_back(shard.weights.name);
    if (!shard.optimizer.name.empty()) names.push_back(shard.optimizer.name);
  }
  names.emplace_back(kManifestName);
  return names;
}

absl::Status CopyFile(storage::FileSystem& file_system, const std::string& from,
                      const std::string& to) {
  ASSIGN_OR_RETURN(storage::SequentialFileWriter writer,
                   storage::SequentialFileWriter::CreateNew(file_system, to));
  RETURN_IF_ERROR(
      file_system.Read(from, [&writer](absl::string_view block) { return writer.Append(block); }));
  return writer.Finish(/*sync=*/true);
}

absl::Status CopyInto(storage::FileSystem& file_system, const std::string& source,
                      const Manifest& manifest, const std::string& directory) {
  RETURN_IF_ERROR(file_system.CreateDirectories(directory));
  const std::string root = DirectoryOf(directory);
  RETURN_IF_ERROR(file_system.SyncDirectory(DirectoryOf(root)));
  for (const std::string& name : FilesOf(manifest)) {
    RETURN_IF_ERROR(
        CopyFile(file_system, absl::StrCat(source, "/", name), absl::StrCat(directory, "/", name)));
  }
  RETURN_IF_ERROR(file_system.SyncDirectory(directory));
  return VerifyCheckpoint(file_system, directory).status();
}

// Returns the reason why copying failed with `status`: `source` is damaged, was removed or was
// replaced meanwhile, or the disk of the copy returns wrong bytes.
absl::Status Explain(storage::FileSystem& file_system, const std::string& source,
                     absl::Status status) {
  if (!file_system.Exists(source)) {
    return absl::UnavailableError(absl::StrCat(
        "checkpoint ", source,
        " was removed while it was copied, because newer checkpoints are there; copy a newer one"));
  }
  if (!absl::IsDataLoss(status)) return status;
  RETURN_IF_ERROR(VerifyCheckpoint(file_system, source).status());
  return absl::UnavailableError(
      absl::StrCat(status.message(), ". Either checkpoint ", source,
                   " was replaced while it was copied, or the disk of the copy changes what is "
                   "written to it. Copy the checkpoint again, or use another disk"));
}

// Returns true if the checkpoint at `path` is the one that `manifest` describes.
absl::StatusOr<bool> IsCopy(storage::FileSystem& file_system, const std::string& path,
                            const Manifest& manifest) {
  ASSIGN_OR_RETURN(Manifest there, VerifyCheckpoint(file_system, path));
  // The comparison ignores is_complete, because a restore changes this mark.
  there.journal.is_complete = manifest.journal.is_complete;
  return FormatManifest(there) == FormatManifest(manifest);
}

}  // namespace

absl::Status CheckIsElsewhere(storage::FileSystem& file_system, const std::string& source,
                              const std::string& root) {
  const std::string own = DirectoryOf(source);
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(root, error);
  std::filesystem::path folder = std::filesystem::weakly_canonical(absolute, error);
  if (error) folder = absolute;
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    if (!file_system.AreSame(folder.string(), own)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("cannot copy checkpoints to ", root, ", because ", own,
                     " is the folder of the run's own checkpoints; give a folder outside of that "
                     "folder, best on another disk"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CopyCheckpoint(storage::FileSystem& file_system,
                                           const std::string& source, const std::string& root) {
  RETURN_IF_ERROR(CheckIsOutsideCheckpoints(file_system, root));
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(file_system, source));
  const std::string target = absl::StrCat(root, "/", CheckpointName(manifest.round));
  if (file_system.Exists(target)) {
    ASSIGN_OR_RETURN(const bool is_copy, IsCopy(file_system, target, manifest));
    if (is_copy) return target;
    return absl::AlreadyExistsError(absl::StrCat(
        target, " exists, but is another checkpoint of round ", manifest.round.value(),
        ", not a copy of ", source, "; move that checkpoint away, or copy to another folder"));
  }
  const std::string directory = absl::StrCat(target, ".copy", kTemporarySuffix);
  RETURN_IF_ERROR(file_system.RemoveAll(directory));
  absl::Status copied = CopyInto(file_system, source, manifest, directory);
  if (copied.ok()) copied = file_system.Rename(directory, target);
  if (copied.ok()) copied = file_system.SyncDirectory(root);
  if (copied.ok()) return target;
  RemoveDirectory(file_system, directory).IgnoreError();  // the next copy removes it or fails
  return Explain(file_system, source, std::move(copied));
}

}  // namespace lodestar::checkpoints
