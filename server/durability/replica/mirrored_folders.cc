// SPDX-License-Identifier: Apache-2.0

#include "server/durability/replica/mirrored_folders.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/runtime/status_macros.h"
#include "server/durability/replica/replication_mark.h"

namespace lodestar::replica {
namespace {

constexpr char kCoordinator[] = "coordinator";
constexpr char kShardPrefix[] = "shard-";
constexpr char kCheckpointPrefix[] = "round-";

std::string ShardFolder(int shard) { return absl::StrCat(kShardPrefix, shard); }

// Returns true if a replica copies the file. Locks and replication marks belong to one machine, so
// they are not copied. Operators' own files next to the checkpoints are not copied either.
bool IsCopied(MirroredFolder folder, absl::Span<const std::string> names) {
  if (names.empty()) return true;
  const absl::string_view first = names.front();
  if (folder == MirroredFolder::kCheckpoints) return absl::StartsWith(first, kCheckpointPrefix);
  if (first != kCoordinator && !absl::StartsWith(first, kShardPrefix)) return false;
  const absl::string_view last = names.back();
  return last != "LOCK" && !absl::StartsWith(last, kReplicationMarkName) &&
         !absl::StartsWith(last, ".tried-");
}

std::vector<std::string> NamesOf(absl::string_view path) {
  return absl::StrSplit(path, '/', absl::SkipEmpty());
}

std::string Join(const std::string& folder, const std::string& path) {
  return path.empty() ? folder : absl::StrCat(folder, "/", path);
}

}  // namespace

MirroredFolders::MirroredFolders(std::string journal_dir, std::string checkpoint_dir)
    : journal_dir_(std::move(journal_dir)), checkpoint_dir_(std::move(checkpoint_dir)) {}

std::string MirroredFolders::Root(MirroredFolder folder) const {
  return folder == MirroredFolder::kJournal ? journal_dir_ : checkpoint_dir_;
}

std::vector<MirroredPath> MirroredFolders::OfShard(int shard) const {
  std::vector<MirroredPath> paths;
  // A journal begins from a checkpoint, so the checkpoints are first.
  if (shard == 0 && !checkpoint_dir_.empty()) paths.push_back({MirroredFolder::kCheckpoints, ""});
  paths.push_back({MirroredFolder::kJournal, ShardFolder(shard)});
  if (shard == 0) paths.push_back({MirroredFolder::kJournal, kCoordinator});
  return paths;
}

absl::StatusOr<std::string> MirroredFolders::Locate(int shard, const MirroredPath& path) const {
  const std::vector<std::string> names = NamesOf(path.path);
  const auto refused = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("path '", path.path, "' ", why));
  };
  for (const std::string& name : names) {
    if (name == "." || name == "..") return refused("leads to another folder");
    if (name.find('\0') != std::string::npos) return refused("has a zero byte");
  }
  if (!IsCopied(path.folder, names)) return refused("is not a file that a replica copies");
  const std::vector<MirroredPath> folders = OfShard(shard);
  const bool is_of_shard =
      std::any_of(folders.begin(), folders.end(), [&](const MirroredPath& folder) {
        return folder.folder == path.folder &&
               (folder.path.empty() || (!names.empty() && names.front() == folder.path));
      });
  if (!is_of_shard) return refused(absl::StrCat("is not in a folder of shard ", shard));
  std::string located = Root(path.folder);
  for (const std::string& name : names) absl::StrAppend(&located, "/", name);
  return located;
}

absl::StatusOr<std::string> MirroredFolders::LocateBelow(int shard,
                                                         const MirroredPath& path) const {
  ASSIGN_OR_RETURN(std::string located, Locate(shard, path));
  for (const MirroredPath& folder : OfShard(shard)) {
    if (located != Join(Root(folder.folder), folder.path)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("path '", path.path, "' is a folder, not a file"));
  }
  return located;
}

std::optional<MirroredPath> MirroredFolders::Find(const std::string& path) const {
  // The journals' folder may lie in the checkpoints' folder, so it is checked first.
  for (const MirroredFolder folder : {MirroredFolder::kJournal, MirroredFolder::kCheckpoints}) {
    absl::string_view rest = path;
    const std::string root = Root(folder);
    if (root.empty() || !absl::ConsumePrefix(&rest, root)) continue;
    if (rest.empty()) return MirroredPath{folder, ""};
    if (!absl::ConsumePrefix(&rest, "/")) continue;
    if (!IsCopied(folder, NamesOf(rest))) return std::nullopt;
    return MirroredPath{folder, std::string(rest)};
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<FileEntry>> MirroredFolders::List(SummedFileSystem& disk,
                                                             int shard) const {
  std::vector<FileEntry> entries;
  for (const MirroredPath& folder : OfShard(shard)) {
    RETURN_IF_ERROR(ListBelow(disk, folder, entries));
  }
  return entries;
}

absl::Status MirroredFolders::ListBelow(SummedFileSystem& disk, const MirroredPath& path,
                                        std::vector<FileEntry>& entries) const {
  const std::string folder = Join(Root(path.folder), path.path);
  ASSIGN_OR_RETURN(std::vector<std::string> names, disk.List(folder));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string located = absl::StrCat(folder, "/", name);
    FileEntry entry;
    entry.path = {path.folder, path.path.empty() ? name : absl::StrCat(path.path, "/", name)};
    if (!IsCopied(path.folder, NamesOf(entry.path.path))) continue;
    entry.is_directory = disk.IsDirectory(located);
    if (entry.is_directory) {
      entries.push_back(entry);
      RETURN_IF_ERROR(ListBelow(disk, entry.path, entries));
      continue;
    }
    ASSIGN_OR_RETURN(const FileSum sum, disk.Sum(located));
    entry.num_bytes = sum.num_bytes;
    entry.crc32c = sum.crc32c;
    entries.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::replica
