// SPDX-License-Identifier: Apache-2.0

#include "server/checkpoint/checkpoint_publisher.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/logging/logging.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "server/checkpoint/checkpoint_reader.h"

namespace lodestar::checkpoint {
namespace {

absl::Status WriteManifest(storage::FileSystem& file_system, const std::string& directory,
                           const checkpoints::Manifest& manifest) {
  ASSIGN_OR_RETURN(storage::SequentialFileWriter file,
                   storage::SequentialFileWriter::Create(
                       file_system, absl::StrCat(directory, "/", checkpoints::kManifestName)));
  RETURN_IF_ERROR(file.Append(checkpoints::FormatManifest(manifest)));
  RETURN_IF_ERROR(file.Finish(/*sync=*/true));
  return file_system.SyncDirectory(directory);
}

// Renames `directory`, which has the complete checkpoint, to `final_path`. If the machine crashes
// during this function, either the old checkpoint of this round or the new one still exists.
absl::Status MoveIntoPlace(storage::FileSystem& file_system, const std::string& directory,
                           const std::string& final_path, MayTouch may_touch) {
  const std::string replaced = absl::StrCat(final_path, checkpoints::kReplacedSuffix);
  RETURN_IF_ERROR(may_touch(directory));
  if (file_system.Exists(final_path)) {
    RETURN_IF_ERROR(may_touch(final_path));
    RETURN_IF_ERROR(may_touch(replaced));
    // If `replaced` keeps its name, Rename() fails.
    checkpoints::RemoveDirectory(file_system, replaced).IgnoreError();
    RETURN_IF_ERROR(file_system.Rename(final_path, replaced));
    if (const absl::Status was_ours = may_touch(replaced); !was_ours.ok()) {
      file_system.Rename(replaced, final_path).IgnoreError();
      return was_ours;
    }
  }
  // If another leader has published this round since the check above, this rename fails, because
  // `final_path` is then a directory that is not empty.
  RETURN_IF_ERROR(file_system.Rename(directory, final_path));
  RETURN_IF_ERROR(file_system.SyncDirectory(DirectoryOf(final_path)));
  checkpoints::RemoveDirectory(file_system, replaced).IgnoreError();  // RemoveOld() tries again
  return absl::OkStatus();
}

bool IsOneOf(storage::FileSystem& file_system, const checkpoints::CheckpointEntry& entry,
             absl::Span<const std::string> paths) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return file_system.AreSame(entry.path, path);
  });
}

// Returns those of `entries` whose rounds are after `newest`, except the spared ones.
std::vector<checkpoints::CheckpointEntry> WrittenAfter(
    storage::FileSystem& file_system, const std::vector<checkpoints::CheckpointEntry>& entries,
    Round newest, absl::Span<const std::string> spared) {
  std::vector<checkpoints::CheckpointEntry> later;
  for (const checkpoints::CheckpointEntry& entry : entries) {
    if (entry.suffix == checkpoints::kTemporarySuffix ||
        entry.suffix == checkpoints::kAbandonedSuffix)
      continue;
    // Compares the round in the manifest, not in the name, as a later start does when it looks for
    // the newest checkpoint.
    if (checkpoints::WrittenRound(file_system, entry) > newest &&
        !IsOneOf(file_system, entry, spared)) {
      later.push_back(entry);
    }
  }
  return later;
}

// Removes the older one of two checkpoints of one round. If it cannot be removed, but has got a
// temporary name, that is not an error.
absl::Status RemoveReplaced(storage::FileSystem& file_system, const std::string& path) {
  const absl::Status removed = checkpoints::RemoveDirectory(file_system, path);
  return file_system.Exists(path) ? removed : absl::OkStatus();
}

// Renames a checkpoint, and renames it back. Meanwhile it has the other one of the two names under
// which it counts, so that a start finds it even if this process ends now.
absl::Status RenameAndBack(storage::FileSystem& file_system,
                           const checkpoints::CheckpointEntry& entry) {
  const std::string other = entry.suffix.empty()
                                ? absl::StrCat(entry.path, checkpoints::kReplacedSuffix)
                                : std::string(absl::StripSuffix(entry.path, entry.suffix));
  const absl::Status renamed = file_system.Rename(entry.path, other);
  // A disk with a replica may return an error after it has renamed the checkpoint.
  if (file_system.Exists(other)) RETURN_IF_ERROR(file_system.Rename(other, entry.path));
  return renamed;
}

}  // namespace

absl::StatusOr<std::string> PublishCheckpoint(storage::FileSystem& file_system,
                                              const std::string& directory,
                                              const checkpoints::Manifest& manifest,
                                              MayTouch may_touch) {
  RETURN_IF_ERROR(WriteManifest(file_system, directory, manifest));
  RETURN_IF_ERROR(checkpoints::VerifyCheckpoint(file_system, directory).status());
  const std::string root = DirectoryOf(directory);
  std::string final_path = absl::StrCat(root, "/", checkpoints::CheckpointName(manifest.round));
  RETURN_IF_ERROR(MoveIntoPlace(file_system, directory, final_path, may_touch));
  return final_path;
}

absl::Status SetAsideNewer(storage::FileSystem& file_system, const std::string& root, Round newest,
                           absl::Span<const std::string> spared, MayTouch may_touch) {
  ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                   checkpoints::ListCheckpoints(file_system, root));
  const auto num_before =
      std::count_if(entries.begin(), entries.end(), [](const checkpoints::CheckpointEntry& entry) {
        return entry.suffix == checkpoints::kAbandonedSuffix;
      });
  std::set<std::string> set_aside;
  for (const checkpoints::CheckpointEntry& entry :
       WrittenAfter(file_system, entries, newest, spared)) {
    RETURN_IF_ERROR(may_touch(entry.path));
    const std::string path(absl::StripSuffix(entry.path, entry.suffix));
    // A crash may leave two entries for one round: a checkpoint, and the older one that it
    // replaced. The newer entry comes first and is renamed. The older entry is removed.
    if (!set_aside.insert(path).second) {
      RETURN_IF_ERROR(RemoveReplaced(file_system, entry.path));
    } else {
      RETURN_IF_ERROR(
          file_system.Rename(entry.path, checkpoints::AbandonedPath(file_system, path)));
    }
  }
  if (set_aside.empty()) return absl::OkStatus();
  const int64_t count = num_before + static_cast<int64_t>(set_aside.size());
  if (count > kManySetAside) {
    logging::LogWarn(
        "{} has {} checkpoints that were set aside (round-N.abandoned). Servers do not remove "
        "them; remove those that you do not need",
        root, count);
  }
  return file_system.SyncDirectory(root);
}

absl::Status CheckCanSetAside(storage::FileSystem& file_system, const std::string& root,
                              Round newest, absl::Span<const std::string> spared,
                              MayTouch may_touch) {
  ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                   checkpoints::ListCheckpoints(file_system, root));
  std::vector<checkpoints::CheckpointEntry> later =
      WrittenAfter(file_system, entries, newest, spared);
  std::reverse(later.begin(), later.end());  // of one round, the one that was replaced comes first
  for (const checkpoints::CheckpointEntry& entry : later) {
    RETURN_IF_ERROR(may_touch(entry.path));
    const bool was_replaced =
        !entry.suffix.empty() &&
        file_system.Exists(std::string(absl::StripSuffix(entry.path, entry.suffix)));
    RETURN_IF_ERROR(was_replaced ? RemoveReplaced(file_system, entry.path)
                                 : RenameAndBack(file_system, entry));
  }
  return absl::OkStatus();
}

absl::Status RemoveOld(storage::FileSystem& file_system, const std::string& root, Round newest,
                       const Retention& retention, absl::Span<const std::string> spared,
                       MayTouch may_touch) {
  ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                   checkpoints::ListCheckpoints(file_system, root));
  const auto is_by_round = [&retention](Round round) {
    return retention.every_rounds > 0 && round.value() % retention.every_rounds == 0;
  };
  std::vector<checkpoints::CheckpointEntry> old;
  int kept = 1;  // the newest checkpoint counts as kept
  int kept_by_round = is_by_round(newest) ? 1 : 0;
  for (const checkpoints::CheckpointEntry& entry : entries) {
    const bool is_replaced = entry.suffix == checkpoints::kReplacedSuffix;
    if (!(entry.suffix.empty() || is_replaced) || entry.round >= newest) continue;
    if (IsOneOf(file_system, entry, spared)) continue;
    const bool is_left_over =
        is_replaced &&
        file_system.Exists(absl::StrCat(root, "/", checkpoints::CheckpointName(entry.round)));
    if (!is_left_over) {
      const bool is_new = ++kept <= retention.keep;
      const bool is_new_by_round = is_by_round(entry.round) && ++kept_by_round <= retention.keep;
      if (is_new || is_new_by_round) continue;
    }
    old.push_back(entry);
  }
  // Usually one save makes at most two old checkpoints unnecessary: one of the newest `keep`, and
  // one of those for `every_rounds`.
  constexpr size_t kMostOfOneSave = 2;
  if (old.size() > kMostOfOneSave) {
    logging::LogWarn(
        "the server removes {} old checkpoints ({} and others), because --checkpoint_keep={}",
        old.size(), old.back().path, retention.keep);
  }
  absl::Status status;
  for (const checkpoints::CheckpointEntry& entry : old) {
    RETURN_IF_ERROR(may_touch(entry.path));
    const absl::Status removed = checkpoints::RemoveDirectory(file_system, entry.path);
    if (!removed.ok()) status = removed;
  }
  return status;
}

void DiscardCheckpoint(storage::FileSystem& file_system, const std::string& directory) {
  checkpoints::RemoveDirectory(file_system, directory).IgnoreError();
}

absl::Status RemoveUnfinished(storage::FileSystem& file_system, const std::string& root,
                              MayTouch may_touch) {
  ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                   checkpoints::ListCheckpoints(file_system, root));
  absl::Status status;
  for (const checkpoints::CheckpointEntry& entry : entries) {
    if (entry.suffix != checkpoints::kTemporarySuffix || !may_touch(entry.path).ok()) continue;
    const absl::Status removed = checkpoints::RemoveDirectory(file_system, entry.path);
    if (!removed.ok()) status = removed;
  }
  return status;
}

}  // namespace lodestar::checkpoint
