// Names of checkpoints below their root directory, and what is there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/runtime/ids.h"
#include "common/storage/file_system.h"

namespace lodestar {

// A directory with this suffix is being written or removed, and is no checkpoint:
// "round-00001234.<try>.tmp".
inline constexpr char kTemporarySuffix[] = ".tmp";
// A directory with this suffix was replaced by a newer one of the same round. It counts only if the
// newer one did not arrive.
inline constexpr char kReplacedSuffix[] = ".old";
// The directory is of a future that a resume from an earlier round has left behind. It is never
// chosen without being named, and never removed. If the name is taken, a number follows:
// "round-00001234.abandoned.2".
inline constexpr char kAbandonedSuffix[] = ".abandoned";

// Below the root directory, beside checkpoints: where servers have their journal unless they are
// told of another place.
inline constexpr char kJournalFolder[] = "journal";

struct CheckpointEntry {
  Round round;
  std::string suffix;  // empty for a checkpoint, else one of the above, without a number
  std::string path;
};

// "round-00001234".
std::string CheckpointName(Round round);
// What a name below `root` says; nothing if it is not that of a checkpoint.
std::optional<CheckpointEntry> ParseCheckpointName(const std::string& root,
                                                   const std::string& name);

// Whether `name` ends as that of a checkpoint that was set aside.
bool IsAbandonedName(absl::string_view name);
// The first name for what is set aside from `path` that is not taken.
std::string AbandonedPath(FileSystem& file_system, absl::string_view path);

// Everything below `root` that is named like a checkpoint: newest first, those without suffix
// before the others of their round, and what was set aside last before what was so before. Empty if
// there is no such directory.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem& file_system,
                                                             const std::string& root);
// Lists those that are neither half written nor left behind.
absl::StatusOr<std::vector<CheckpointEntry>> ListWholeCheckpoints(FileSystem& file_system,
                                                                  const std::string& root);

// Returns the names, without suffix, of checkpoints beside `checkpoint` that were set aside and
// have more rounds than it. Copies that have these names elsewhere must not be taken for the
// newest. Blocks for the disk. Errors: those of files.
absl::StatusOr<std::vector<std::string>> NamesSetAsideAfter(FileSystem& file_system,
                                                            const std::string& checkpoint);

// The round that the manifest of a checkpoint says; that of its name if there is no telling.
Round WrittenRound(FileSystem& file_system, const CheckpointEntry& entry);

// Takes those out of `entries` that a former leader has written after a later one had taken its
// place (IsOvertaken()), and returns them. Blocks for the disk.
std::vector<CheckpointEntry> TakeOutOvertaken(FileSystem& file_system,
                                              std::vector<CheckpointEntry>& entries);

// Returns the path of the checkpoint that `folder` is or lies in, with symbolic links resolved.
// None: it lies outside of checkpoints. `folder` need not be there.
std::optional<std::string> CheckpointAround(FileSystem& file_system, const std::string& folder);

// Checks that `folder` is no checkpoint and lies in none, also through symbolic links: a checkpoint
// is removed with all that is in it once newer ones are there. Errors: InvalidArgument naming the
// checkpoint.
absl::Status CheckIsOutsideCheckpoints(FileSystem& file_system, const std::string& folder);

// Gives the directory a temporary name first, so that a program that copies it meanwhile does not
// take what is left of it for a checkpoint. Never fails: what stays is found again by
// ListCheckpoints().
void RemoveDirectory(FileSystem& file_system, const std::string& path);

}  // namespace lodestar
