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
// Returns a name for the checkpoint `path` as an abandoned one. No other file has this name.
std::string AbandonedPath(storage::FileSystem& file_system, absl::string_view path);

// Returns all directories in `root` that are named like a checkpoint. The newest round comes first.
// Within a round, a directory without a suffix comes first. Of several abandoned ones, the one that
// was abandoned last comes first. Returns an empty list if `root` does not exist.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(storage::FileSystem& file_system,
                                                             const std::string& root);
// Returns the checkpoints that are complete and not abandoned or replaced.
absl::StatusOr<std::vector<CheckpointEntry>> ListWholeCheckpoints(storage::FileSystem& file_system,
                                                                  const std::string& root);

// Returns the names, without suffix, of the abandoned checkpoints beside `checkpoint` whose rounds
// are later. Copies with these names in another place must not be taken for the newest checkpoint.
// Blocks for the disk. Errors: those of files.
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

// Returns the path of the checkpoint that `folder` is or lies in, with symbolic links resolved.
// Returns nullopt if it is outside of checkpoints. `folder` need not exist.
std::optional<std::string> CheckpointAround(storage::FileSystem& file_system,
                                            const std::string& folder);

// Checks that `folder` is not a checkpoint and not in one, also through symbolic links: a
// checkpoint is removed with everything in it when newer ones exist. Errors: InvalidArgument naming
// the checkpoint.
absl::Status CheckIsOutsideCheckpoints(storage::FileSystem& file_system, const std::string& folder);

// Removes the directory. Gives it a temporary name first. So a program which copies it meanwhile
// does not mistake an incomplete directory for a checkpoint. Never fails: if a part could not be
// removed, ListCheckpoints() finds it again.
void RemoveDirectory(storage::FileSystem& file_system, const std::string& path);

}  // namespace lodestar::checkpoints
