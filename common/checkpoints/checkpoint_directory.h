// SPDX-License-Identifier: Apache-2.0

// Names and lists the checkpoints in a root directory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/runtime/ids.h"
#include "common/storage/file_system.h"

namespace lodestar::checkpoints {

// Suffix of a directory that is being written or removed, and is not a checkpoint:
// "round-00001234.<attempt>.tmp".
inline constexpr char kTemporarySuffix[] = ".tmp";
// Suffix of a directory that was replaced by a newer one of the same round. It counts as a
// checkpoint only if the newer directory is missing.
inline constexpr char kReplacedSuffix[] = ".old";
// Suffix of an abandoned checkpoint. A checkpoint becomes abandoned if a run resumes from an
// earlier round. It is then used only if an operator names it, and is never removed. If the name is
// taken, a number is appended: "round-00001234.abandoned.2".
inline constexpr char kAbandonedSuffix[] = ".abandoned";

// Folder in the root directory, beside the checkpoints, where servers keep their journal by
// default.
inline constexpr char kJournalFolder[] = "journal";

struct CheckpointEntry {
  Round round;
  std::string suffix;  // empty for a checkpoint, else one of the suffixes above, without a number
  std::string path;
};

// Returns a name such as "round-00001234".
std::string CheckpointName(Round round);
// Parses a name in the directory `root`. Returns nullopt if it is not the name of a checkpoint.
std::optional<CheckpointEntry> ParseCheckpointName(const std::string& root,
                                                   const std::string& name);

// Returns true if `name` has the suffix of an abandoned checkpoint.
bool IsAbandonedName(absl::string_view name);
// Returns the path to which the checkpoint `path` is renamed if it becomes abandoned. No file has
// this path yet.
std::string AbandonedPath(storage::FileSystem& file_system, absl::string_view path);

// Returns all directories in `root` that are named like a checkpoint. The newest round comes first.
// Within a round, a directory without a suffix comes first. Of several abandoned ones, the one that
// was abandoned last comes first. Returns an empty list if `root` does not exist.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(storage::FileSystem& file_system,
                                                             const std::string& root);
// Returns the checkpoints that may be used: those without a suffix, and those with kReplacedSuffix.
// They have the order of ListCheckpoints().
absl::StatusOr<std::vector<CheckpointEntry>> ListWholeCheckpoints(storage::FileSystem& file_system,
                                                                  const std::string& root);

// Returns the names, without suffix, of abandoned checkpoints whose rounds are later than that of
// `checkpoint`. Looks in the directory of `checkpoint`. A backup may have copies under these names,
// which must not count as its newest checkpoints. Blocks on the disk. Errors: those of files.
absl::StatusOr<std::vector<std::string>> NamesSetAsideAfter(storage::FileSystem& file_system,
                                                            const std::string& checkpoint);

// Returns the round in the checkpoint's manifest, or the round in its name if the manifest cannot
// be read.
Round WrittenRound(storage::FileSystem& file_system, const CheckpointEntry& entry);

// Removes the overtaken checkpoints from `entries`, and returns them. A checkpoint is overtaken if
// a former leader wrote it after a new leader had taken over: see IsOvertaken(). Blocks on the
// disk.
std::vector<CheckpointEntry> TakeOutOvertaken(storage::FileSystem& file_system,
                                              std::vector<CheckpointEntry>& entries);

// Returns the checkpoint that `folder` is, or that contains `folder`. Symbolic links are resolved.
// nullopt means that there is no such checkpoint. `folder` need not exist.
std::optional<std::string> CheckpointAround(storage::FileSystem& file_system,
                                            const std::string& folder);

// Checks that `folder` is not a checkpoint and does not lie in one. Symbolic links are followed.
// Files in a checkpoint would be lost, because old checkpoints are removed with everything in them.
// Errors: InvalidArgument naming the checkpoint.
absl::Status CheckIsOutsideCheckpoints(storage::FileSystem& file_system, const std::string& folder);

// Removes the directory of a checkpoint. Renames it to a temporary name first, so that no program
// takes the rest of it for a checkpoint. If nothing is there, that is not an error. After an error,
// ListCheckpoints() still lists what could not be removed. Errors: those of files.
absl::Status RemoveDirectory(storage::FileSystem& file_system, const std::string& path);

}  // namespace lodestar::checkpoints
