// SPDX-License-Identifier: Apache-2.0

#include "server/host/folder_fence.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_lock.h"

namespace lodestar::host {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPathBytes = 4096;  // PATH_MAX of Linux

absl::Status Refuse(absl::string_view path, absl::string_view reason) {
  return absl::FailedPreconditionError(
      absl::StrCat("this server refuses the coordinator's order to use ",
                   PeerText(path, kMaxPathBytes), ": ", reason));
}

// Returns the path with links resolved. Parts of the path that do not exist stay as they are.
fs::path Resolved(const fs::path& path) {
  std::error_code error;
  fs::path resolved = fs::weakly_canonical(path, error);
  return error ? fs::path() : resolved;
}

absl::Status CheckForm(const std::string& path) {
  const fs::path parsed(path);
  const bool is_plain = path.size() <= kMaxPathBytes && path.find('\0') == std::string::npos &&
                        parsed.is_absolute() && parsed.lexically_normal() == parsed &&
                        parsed.has_filename();
  if (is_plain) return absl::OkStatus();
  return Refuse(
      path, "it is not an absolute path or has '..' in it; give the coordinator absolute paths");
}

std::optional<checkpoints::CheckpointEntry> EntryOf(const std::string& path) {
  const fs::path parsed(path);
  return checkpoints::ParseCheckpointName(parsed.parent_path().string(),
                                          parsed.filename().string());
}

absl::Status CheckIsNoLink(const std::string& path) {
  std::error_code error;
  return fs::is_symlink(fs::symlink_status(path, error)) ? Refuse(path, "it is a symbolic link")
                                                         : absl::OkStatus();
}

// Checks that neither the checkpoint nor an entry of its directory is a link.
absl::Status CheckHasNoLinks(const std::string& directory) {
  RETURN_IF_ERROR(CheckIsNoLink(directory));
  std::error_code error;
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    RETURN_IF_ERROR(CheckIsNoLink(entry->path().string()));
  }
  return absl::OkStatus();
}

}  // namespace

FolderFence::FolderFence(std::vector<std::string> named) : named_(std::move(named)) {}

bool FolderFence::IsNamed(const std::string& path, bool itself) const {
  const fs::path resolved = Resolved(path);
  return !resolved.empty() &&
         std::any_of(named_.begin(), named_.end(), [&](const std::string& named) {
           std::error_code error;
           const fs::path absolute = fs::absolute(named, error);
           if (error) return false;  // the folder that the path is relative to is gone
           const fs::path folder = Resolved(absolute);
           if (folder.empty() || itself) return folder == resolved;
           return std::mismatch(folder.begin(), folder.end(), resolved.begin(), resolved.end())
                      .first == folder.end();
         });
}

absl::Status FolderFence::CheckNamed(const std::string& path) const {
  if (named_.empty() || IsNamed(path, /*itself=*/false)) return absl::OkStatus();
  return Refuse(path,
                absl::StrCat("this server's flags give only ", absl::StrJoin(named_, ", "),
                             ". Give all servers the same --checkpoint_dir, --fallback_dir, "
                             "--resume and --init_from, or give them only to the coordinator"));
}

absl::Status FolderFence::CheckCheckpoint(const std::string& path) const {
  RETURN_IF_ERROR(CheckForm(path));
  RETURN_IF_ERROR(CheckNamed(path));
  const std::optional<checkpoints::CheckpointEntry> entry = EntryOf(path);
  if (named_.empty() && (!entry.has_value() || entry->suffix == checkpoints::kTemporarySuffix)) {
    return Refuse(path,
                  "its name is not that of a checkpoint, such as round-00001234; give this "
                  "server the same --resume or --init_from as the coordinator");
  }
  return CheckHasNoLinks(path);
}

absl::Status FolderFence::CheckSource(const shards::WeightsSource& source) const {
  if (const auto* checkpoint = std::get_if<shards::CheckpointSource>(&source)) {
    return CheckCheckpoint(checkpoint->directory);
  }
  const auto* file = std::get_if<shards::SafetensorsSource>(&source);
  if (file == nullptr) return absl::OkStatus();
  std::error_code error;
  if (fs::is_directory(file->path, error)) {
    // If this server's operator has named this very folder, links in it are allowed: the files of a
    // model in Hugging Face's cache are links.
    if (IsNamed(file->path, /*itself=*/true)) return CheckForm(file->path);
    return CheckCheckpoint(file->path);
  }
  RETURN_IF_ERROR(CheckForm(file->path));
  RETURN_IF_ERROR(CheckNamed(file->path));
  if (!named_.empty() || absl::EndsWith(file->path, ".safetensors")) return absl::OkStatus();
  return Refuse(
      file->path,
      "its name does not end with .safetensors; give this server the same --init_from as the "
      "coordinator");
}

absl::Status FolderFence::CheckFolder(const shards::SharedFolder& folder) const {
  if (folder.path.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckForm(folder.path));
  return CheckNamed(folder.path);
}

absl::Status FolderFence::CheckSave(const shards::SharedFolder& folder,
                                    const std::string& directory) const {
  RETURN_IF_ERROR(CheckForm(directory));
  RETURN_IF_ERROR(CheckNamed(directory));
  const std::optional<checkpoints::CheckpointEntry> entry = EntryOf(directory);
  if (!entry.has_value() || entry->suffix != checkpoints::kTemporarySuffix) {
    return Refuse(directory,
                  "a new checkpoint must have a name such as round-00001234.<try>.tmp; use the "
                  "same release on all servers");
  }
  RETURN_IF_ERROR(CheckHasNoLinks(directory));
  if (!named_.empty()) return absl::OkStatus();
  const absl::Status held = storage::CheckSameHolder(folder.path, folder.claim_id,
                                                     fs::path(directory).parent_path().string());
  return held.ok() ? held : Refuse(directory, held.message());
}

absl::Status FolderFence::CheckPublished(const std::string& path) const {
  return CheckCheckpoint(path);
}

}  // namespace lodestar::host
