// SPDX-License-Identifier: Apache-2.0

#include "common/checkpoints/checkpoint_directory.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::checkpoints {
namespace {

constexpr char kPrefix[] = "round-";

// Removes the suffix of an abandoned checkpoint from *name. Returns false if *name has no such
// suffix.
bool ConsumeAbandonedSuffix(absl::string_view* name) {
  absl::string_view rest = *name;
  const size_t dot = rest.rfind('.');
  int number = 0;
  if (dot != rest.npos && absl::SimpleAtoi(rest.substr(dot + 1), &number) && number > 1) {
    rest = rest.substr(0, dot);
  }
  if (!absl::ConsumeSuffix(&rest, kAbandonedSuffix)) return false;
  *name = rest;
  return true;
}

// Returns the absolute path without a slash at its end, and without symbolic links in the part that
// exists. If links cannot be followed, the path is only made absolute.
std::string RealPath(const std::string& folder) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(folder, error);
  if (error) absolute = folder;  // the current folder was removed
  const std::filesystem::path real = std::filesystem::weakly_canonical(absolute, error);
  std::string path = error ? absolute.lexically_normal().string() : real.string();
  while (path.size() > 1 && absl::EndsWith(path, "/")) path.pop_back();
  return path;
}

}  // namespace

std::optional<CheckpointEntry> ParseCheckpointName(const std::string& root,
                                                   const std::string& name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, kPrefix)) return std::nullopt;
  CheckpointEntry entry;
  entry.path = absl::StrCat(root, "/", name);
  if (absl::ConsumeSuffix(&rest, kTemporarySuffix)) {
    entry.suffix = kTemporarySuffix;
  } else if (absl::ConsumeSuffix(&rest, kReplacedSuffix)) {
    entry.suffix = kReplacedSuffix;
  } else if (ConsumeAbandonedSuffix(&rest)) {
    entry.suffix = kAbandonedSuffix;
  }
  // A temporary name has an attempt after the round, such as "1234.copy". The attempt is cut off.
  if (entry.suffix == kTemporarySuffix) rest = rest.substr(0, rest.find('.'));
  int64_t round = 0;
  if (!absl::SimpleAtoi(rest, &round) || round < 0) return std::nullopt;
  entry.round = Round(round);
  return entry;
}

std::string CheckpointName(Round round) {
  return absl::StrFormat("%s%08d", kPrefix, round.value());
}

bool IsAbandonedName(absl::string_view name) { return ConsumeAbandonedSuffix(&name); }

std::string AbandonedPath(storage::FileSystem& file_system, absl::string_view path) {
  return storage::UnusedPath(file_system, absl::StrCat(path, kAbandonedSuffix));
}

absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(storage::FileSystem& file_system,
                                                             const std::string& root) {
  std::vector<CheckpointEntry> entries;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, file_system.List(root));
  for (const std::string& name : names) {
    if (auto entry = ParseCheckpointName(root, name); entry.has_value()) {
      entries.push_back(*std::move(entry));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const CheckpointEntry& a, const CheckpointEntry& b) {
    // Abandoned checkpoints of the same round have numbers in their names. If two numbers differ in
    // length, the longer number is the higher.
    return std::tuple(-a.round.value(), a.suffix, b.path.size(), b.path) <
           std::tuple(-b.round.value(), b.suffix, a.path.size(), a.path);
  });
  return entries;
}

absl::StatusOr<std::vector<CheckpointEntry>> ListWholeCheckpoints(storage::FileSystem& file_system,
                                                                  const std::string& root) {
  ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, ListCheckpoints(file_system, root));
  std::erase_if(entries, [](const CheckpointEntry& entry) {
    return !entry.suffix.empty() && entry.suffix != kReplacedSuffix;
  });
  return entries;
}

absl::StatusOr<std::vector<std::string>> NamesSetAsideAfter(storage::FileSystem& file_system,
                                                            const std::string& checkpoint) {
  const std::string root = DirectoryOf(checkpoint);
  const auto own = ParseCheckpointName(root, checkpoint.substr(checkpoint.rfind('/') + 1));
  std::vector<std::string> names;
  if (!own.has_value()) return names;
  ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(file_system, root));
  for (const CheckpointEntry& entry : entries) {
    if (entry.suffix != kAbandonedSuffix || entry.round <= own->round) continue;
    const std::string name = CheckpointName(entry.round);
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

Round WrittenRound(storage::FileSystem& file_system, const CheckpointEntry& entry) {
  const absl::StatusOr<Manifest> manifest = ReadManifest(file_system, entry.path);
  return manifest.ok() ? manifest->round : entry.round;
}

std::vector<CheckpointEntry> TakeOutOvertaken(storage::FileSystem& file_system,
                                              std::vector<CheckpointEntry>& entries) {
  std::vector<absl::StatusOr<Manifest>> manifests;
  for (const CheckpointEntry& entry : entries) {
    manifests.push_back(ReadManifest(file_system, entry.path));
  }
  std::vector<CheckpointEntry> left;
  std::vector<CheckpointEntry> overtaken;
  for (size_t i = 0; i < entries.size(); ++i) {
    const bool is_overtaken =
        manifests[i].ok() &&
        std::any_of(manifests.begin(), manifests.end(), [&](const auto& other) {
          return other.ok() && IsOvertaken(*manifests[i], *other);
        });
    (is_overtaken ? overtaken : left).push_back(std::move(entries[i]));
  }
  entries = std::move(left);
  return overtaken;
}

std::optional<std::string> CheckpointAround(storage::FileSystem& file_system,
                                            const std::string& folder) {
  std::string path = RealPath(folder);
  for (bool is_folder = true;; is_folder = false) {
    const std::string above = DirectoryOf(path);
    if (above == path) return std::nullopt;
    const bool has_its_name =
        ParseCheckpointName(above, path.substr(path.rfind('/') + 1)).has_value();
    // `folder` itself is a checkpoint if it has a manifest. A folder above it must also be named
    // like a checkpoint.
    if ((is_folder || has_its_name) && file_system.Exists(absl::StrCat(path, "/", kManifestName))) {
      return path;
    }
    path = above;
  }
}

absl::Status CheckIsOutsideCheckpoints(storage::FileSystem& file_system,
                                       const std::string& folder) {
  const std::optional<std::string> checkpoint = CheckpointAround(file_system, folder);
  if (!checkpoint.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      *checkpoint == RealPath(folder) ? "it is a checkpoint"
                                      : absl::StrCat("it lies in checkpoint ", *checkpoint),
      ". The server removes a checkpoint with all its files when newer checkpoints exist. To "
      "continue that run, give the folder ",
      DirectoryOf(*checkpoint), ". To start a new run from its weights, give another folder and ",
      "--init_from=", *checkpoint));
}

absl::Status RemoveDirectory(storage::FileSystem& file_system, const std::string& path) {
  if (absl::EndsWith(path, kTemporarySuffix)) return file_system.RemoveAll(path);
  // Syncs the new name to disk before the first file is removed. Otherwise a crash could leave an
  // incomplete folder under the old name.
  const std::string leaving = absl::StrCat(path, ".removed", kTemporarySuffix);
  RETURN_IF_ERROR(file_system.RemoveAll(leaving));
  const absl::Status renamed = file_system.Rename(path, leaving);
  if (absl::IsNotFound(renamed)) return absl::OkStatus();
  RETURN_IF_ERROR(renamed);
  RETURN_IF_ERROR(file_system.SyncDirectory(DirectoryOf(path)));
  return file_system.RemoveAll(leaving);
}

}  // namespace lodestar::checkpoints
