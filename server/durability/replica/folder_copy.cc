// SPDX-License-Identifier: Apache-2.0

#include "server/durability/replica/folder_copy.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/crc32c/crc32c.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"

namespace lodestar::replica {
namespace {

// Suffix of a file that is being received. It is renamed when it is complete, and then replaces the
// old file.
constexpr char kArriving[] = ".arriving";

struct Transfer {
  FileEntry entry;
  int64_t from = 0;  // number of bytes that the replica has already
  bool replaces = false;
};

MirroredPath Above(const MirroredPath& path) {
  const size_t slash = path.path.rfind('/');
  return {path.folder, slash == std::string::npos ? "" : path.path.substr(0, slash)};
}

bool IsSame(const FileEntry& entry, const FileEntry& other) {
  return entry.is_directory == other.is_directory && entry.num_bytes == other.num_bytes &&
         entry.crc32c == other.crc32c;
}

bool IsManifest(const FileEntry& entry) {
  return absl::EndsWith(entry.path.path, checkpoints::kManifestName);
}

class Sending {
 public:
  Sending(storage::FileSystem& disk, const MirroredFolders& folders, int shard, ReplicaLane& lane,
          const OnCopyProgress& on_progress)
      : disk_(disk), folders_(folders), shard_(shard), lane_(lane), on_progress_(on_progress) {}

  absl::Status Run(const std::vector<FileEntry>& ours, const std::vector<FileEntry>& theirs) {
    std::map<MirroredPath, FileEntry> there;
    for (const FileEntry& entry : theirs) there[entry.path] = entry;
    std::vector<Transfer> transfers;
    for (const FileEntry& entry : ours) {
      const auto other = there.find(entry.path);
      const FileEntry* const same_name = other == there.end() ? nullptr : &other->second;
      if (entry.is_directory) {
        RETURN_IF_ERROR(MakeDirectory(entry.path, same_name));
        continue;
      }
      ASSIGN_OR_RETURN(const std::optional<Transfer> transfer, PlanTransfer(entry, same_name));
      if (!transfer.has_value()) continue;
      transfers.push_back(*transfer);
      progress_.all_bytes += entry.num_bytes - transfer->from;
    }
    // A manifest makes a checkpoint valid, so manifests are sent last.
    std::stable_partition(transfers.begin(), transfers.end(),
                          [](const Transfer& transfer) { return !IsManifest(transfer.entry); });
    for (const Transfer& transfer : transfers) RETURN_IF_ERROR(Send(transfer));
    RETURN_IF_ERROR(SyncDirectories());
    RETURN_IF_ERROR(RemoveOthers(ours, theirs));
    return Await();
  }

 private:
  absl::Status MakeDirectory(const MirroredPath& path, const FileEntry* there) {
    if (there != nullptr && there->is_directory) return absl::OkStatus();
    if (there != nullptr) RETURN_IF_ERROR(Remove(path));
    touched_.insert(Above(path));
    return lane_.Send(CreateDirectoriesChange{path});
  }

  // Returns how to send the file `entry`. Returns nothing if the replica has the same file. `there`
  // is the replica's file of the same name. Null means that there is none.
  absl::StatusOr<std::optional<Transfer>> PlanTransfer(const FileEntry& entry,
                                                       const FileEntry* there) {
    if (there == nullptr) return Transfer{entry};
    if (there->is_directory) {
      RETURN_IF_ERROR(Remove(entry.path));
      return Transfer{entry};
    }
    if (IsSame(entry, *there)) return std::nullopt;
    if (there->num_bytes < entry.num_bytes) {
      ASSIGN_OR_RETURN(const uint32_t crc32c, ChecksumOfFirst(entry.path, there->num_bytes));
      if (crc32c == there->crc32c) return Transfer{entry, there->num_bytes};
    }
    return Transfer{.entry = entry, .from = 0, .replaces = true};
  }

  absl::StatusOr<uint32_t> ChecksumOfFirst(const MirroredPath& path, int64_t num_bytes) {
    uint32_t crc32c = 0;
    RETURN_IF_ERROR(ReadFrom(path, 0, num_bytes, [&](absl::string_view block) {
      crc32c = crc32c::Crc32c(block.data(), block.size(), crc32c);
      return absl::OkStatus();
    }));
    return crc32c;
  }

  absl::Status ReadFrom(const MirroredPath& path, int64_t begin, int64_t end,
                        absl::FunctionRef<absl::Status(absl::string_view)> take) {
    ASSIGN_OR_RETURN(const std::string located, folders_.Locate(shard_, path));
    int64_t at = 0;
    return disk_.Read(located, [&](absl::string_view block) {
      const int64_t first = std::clamp<int64_t>(begin - at, 0, block.size());
      const int64_t last = std::clamp<int64_t>(end - at, first, block.size());
      at += static_cast<int64_t>(block.size());
      return first == last ? absl::OkStatus() : take(block.substr(first, last - first));
    });
  }

  absl::Status Send(const Transfer& transfer) {
    const MirroredPath& path = transfer.entry.path;
    const MirroredPath arriving = {path.folder,
                                   absl::StrCat(path.path, transfer.replaces ? kArriving : "")};
    const uint64_t file = ++last_file_;
    RETURN_IF_ERROR(lane_.Send(CreateFileChange{file, arriving, transfer.from > 0}));
    RETURN_IF_ERROR(
        ReadFrom(path, transfer.from, transfer.entry.num_bytes, [&](absl::string_view block) {
          progress_.done_bytes += static_cast<int64_t>(block.size());
          on_progress_(progress_);
          return lane_.Send(AppendChange{file, std::string(block)});
        }));
    RETURN_IF_ERROR(lane_.Send(SyncFileChange{file}));
    RETURN_IF_ERROR(lane_.Send(CloseFileChange{file}));
    if (transfer.replaces) RETURN_IF_ERROR(lane_.Send(RenameChange{arriving, path}));
    touched_.insert(Above(path));
    return absl::OkStatus();
  }

  absl::Status SyncDirectories() {
    for (const MirroredPath& path : touched_) {
      RETURN_IF_ERROR(lane_.Send(SyncDirectoryChange{path}));
    }
    touched_.clear();
    return absl::OkStatus();
  }

  // Removes the files that only the replica has, oldest first. Each removal is on disk before the
  // next one. So a crash cannot bring back an old segment of a journal without the segments after
  // it.
  absl::Status RemoveOthers(const std::vector<FileEntry>& ours,
                            const std::vector<FileEntry>& theirs) {
    std::set<MirroredPath> here;
    for (const FileEntry& entry : ours) here.insert(entry.path);
    for (const FileEntry& entry : theirs) {
      if (here.count(entry.path) > 0 || IsRemoved(entry.path)) continue;
      RETURN_IF_ERROR(Remove(entry.path));
      RETURN_IF_ERROR(lane_.Send(SyncDirectoryChange{Above(entry.path)}));
    }
    return absl::OkStatus();
  }

  absl::Status Remove(const MirroredPath& path) {
    removed_.push_back(path);
    return lane_.Send(RemoveChange{path});
  }

  // Returns true if a folder above `path` was removed.
  bool IsRemoved(const MirroredPath& path) const {
    return std::any_of(removed_.begin(), removed_.end(), [&](const MirroredPath& removed) {
      return removed.folder == path.folder && absl::StartsWith(path.path, removed.path + "/");
    });
  }

  absl::Status Await() {
    ASSIGN_OR_RETURN(const uint64_t question, lane_.Ask());
    return lane_.Await(question);
  }

  storage::FileSystem& disk_;
  const MirroredFolders& folders_;
  const int shard_;
  ReplicaLane& lane_;
  const OnCopyProgress& on_progress_;
  CopyProgress progress_;
  uint64_t last_file_ = 0;
  std::set<MirroredPath> touched_;  // directories in which names were added
  std::vector<MirroredPath> removed_;
};

// Renames the checkpoints that differ from the replica's, or that the replica lacks. They are then
// no longer used.
absl::Status SetOthersAside(storage::FileSystem& disk, const MirroredFolders& folders, int shard,
                            const std::vector<FileEntry>& ours,
                            const std::vector<FileEntry>& theirs,
                            absl::FunctionRef<void(const std::string& text)> tell) {
  std::map<MirroredPath, FileEntry> there;
  for (const FileEntry& entry : theirs) there[entry.path] = entry;
  std::set<std::string> others;
  for (const FileEntry& entry : ours) {
    const std::string checkpoint = entry.path.path.substr(0, entry.path.path.find('/'));
    if (entry.path.folder != MirroredFolder::kCheckpoints ||
        checkpoints::IsAbandonedName(checkpoint)) {
      continue;
    }
    const auto other = there.find(entry.path);
    if (other == there.end() || !IsSame(entry, other->second)) others.insert(checkpoint);
  }
  for (const std::string& checkpoint : others) {
    ASSIGN_OR_RETURN(const std::string located,
                     folders.Locate(shard, {MirroredFolder::kCheckpoints, checkpoint}));
    // Removes an incomplete checkpoint, such as one that an interrupted fetch has left.
    if (!disk.Exists(absl::StrCat(located, "/", checkpoints::kManifestName))) {
      RETURN_IF_ERROR(disk.RemoveAll(located));
      continue;
    }
    const std::string aside = checkpoints::AbandonedPath(disk, located);
    RETURN_IF_ERROR(disk.Rename(located, aside));
    tell(absl::StrCat("checkpoint ", checkpoint, " differs from the replica's; it is kept as ",
                      aside));
  }
  return absl::OkStatus();
}

absl::Status RemoveJournals(storage::FileSystem& disk, const MirroredFolders& folders, int shard,
                            const std::vector<FileEntry>& entries) {
  for (const FileEntry& entry : entries) {
    if (entry.path.folder != MirroredFolder::kJournal) continue;
    ASSIGN_OR_RETURN(const std::string located, folders.Locate(shard, entry.path));
    RETURN_IF_ERROR(disk.RemoveAll(located));
  }
  return absl::OkStatus();
}

absl::Status FetchFile(storage::FileSystem& disk, const std::string& located,
                       const FileEntry& entry, ReplicaConnection& connection,
                       absl::FunctionRef<void(size_t num_bytes)> on_block) {
  ASSIGN_OR_RETURN(storage::SequentialFileWriter file,
                   storage::SequentialFileWriter::Create(disk, located));
  RETURN_IF_ERROR(connection.ReadFile(entry.path, [&](absl::string_view block) {
    on_block(block.size());
    return file.Append(block);
  }));
  RETURN_IF_ERROR(file.Finish(/*sync=*/true));
  if (file.num_bytes() == entry.num_bytes && file.crc32c() == entry.crc32c) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(located, " arrived from the replica with ",
                                          file.num_bytes(), " bytes and checksum ", file.crc32c(),
                                          ", but in the replica's list it has ", entry.num_bytes,
                                          " bytes and checksum ", entry.crc32c));
}

// The files of one checkpoint, either here or on the replica.
struct CheckpointFiles {
  Round round;
  std::vector<FileEntry> files;
  bool has_manifest = false;
};

// Returns the checkpoints by name, including incomplete ones. Renamed checkpoints are left out.
std::map<std::string, CheckpointFiles> CheckpointsIn(const std::vector<FileEntry>& entries) {
  std::map<std::string, CheckpointFiles> checkpoints;
  for (const FileEntry& entry : entries) {
    const std::string name = entry.path.path.substr(0, entry.path.path.find('/'));
    const auto parsed = checkpoints::ParseCheckpointName("", name);
    if (entry.path.folder != MirroredFolder::kCheckpoints || entry.is_directory ||
        !parsed.has_value() || !parsed->suffix.empty()) {
      continue;
    }
    CheckpointFiles& checkpoint = checkpoints[name];
    checkpoint.round = parsed->round;
    checkpoint.files.push_back(entry);
    checkpoint.has_manifest |= IsManifest(entry);
  }
  return checkpoints;
}

bool AreSame(const CheckpointFiles& ours, const CheckpointFiles& theirs) {
  return std::equal(
      ours.files.begin(), ours.files.end(), theirs.files.begin(), theirs.files.end(),
      [](const FileEntry& a, const FileEntry& b) { return a.path == b.path && IsSame(a, b); });
}

// Returns the rounds that have a complete checkpoint here. Renamed checkpoints count too.
std::set<Round> RoundsHere(const std::vector<FileEntry>& ours) {
  std::set<Round> rounds;
  for (const FileEntry& entry : ours) {
    if (entry.path.folder != MirroredFolder::kCheckpoints || !IsManifest(entry)) continue;
    const auto parsed =
        checkpoints::ParseCheckpointName("", entry.path.path.substr(0, entry.path.path.find('/')));
    if (parsed.has_value() && parsed->suffix != checkpoints::kTemporarySuffix)
      rounds.insert(parsed->round);
  }
  return rounds;
}

class LostCheckpoints {
 public:
  LostCheckpoints(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                  ReplicaConnection& connection, const OnCopyProgress& on_progress)
      : disk_(disk),
        folders_(folders),
        shard_(shard),
        connection_(connection),
        on_progress_(on_progress) {}

  absl::Status Fetch(const std::vector<FileEntry>& ours, const std::vector<FileEntry>& theirs,
                     absl::FunctionRef<void(const std::string& text)> tell) {
    const std::map<std::string, CheckpointFiles> here = CheckpointsIn(ours);
    const std::set<Round> rounds = RoundsHere(ours);
    for (const auto& [name, there] : CheckpointsIn(theirs)) {
      if (!there.has_manifest) continue;
      const auto same_name = here.find(name);
      std::string why;
      if (same_name == here.end()) {
        // This server removes old checkpoints itself. So a checkpoint that is older than all others
        // here is not lost.
        const bool is_old = !rounds.empty() && there.round < *rounds.begin();
        if (is_old || rounds.count(there.round) > 0) continue;
        why = "is missing on this machine";
      } else if (!AreSame(same_name->second, there)) {
        ASSIGN_OR_RETURN(why, WhyDamaged(name));
      }
      if (why.empty()) continue;
      ASSIGN_OR_RETURN(const bool is_taken, Take(name, there));
      tell(absl::StrCat(
          "checkpoint ", name, " ", why,
          is_taken ? "; it was copied from the replica" : ", and the replica's copy is damaged"));
    }
    return absl::OkStatus();
  }

 private:
  // Returns why the checkpoint on this machine is damaged. Empty means that it is not damaged.
  absl::StatusOr<std::string> WhyDamaged(const std::string& name) const {
    ASSIGN_OR_RETURN(const std::string located, Locate(name));
    const absl::Status verified = checkpoints::VerifyCheckpoint(disk_, located).status();
    if (verified.ok()) return "";
    if (!IsOfContents(verified)) return verified;
    return absl::StrCat("is damaged on this machine (", verified.message(), ")");
  }

  static bool IsOfContents(const absl::Status& status) {
    return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  }

  absl::StatusOr<std::string> Locate(const std::string& name) const {
    return folders_.Locate(shard_, {MirroredFolder::kCheckpoints, name});
  }

  // Fetches a checkpoint from the replica. Returns false if the fetched checkpoint is damaged.
  absl::StatusOr<bool> Take(const std::string& name, const CheckpointFiles& there) {
    ASSIGN_OR_RETURN(const std::string located, Locate(name));
    const std::string arriving = absl::StrCat(located, ".fetched", checkpoints::kTemporarySuffix);
    RETURN_IF_ERROR(disk_.RemoveAll(arriving));
    RETURN_IF_ERROR(disk_.CreateDirectories(arriving));
    for (const FileEntry& entry : there.files) progress_.all_bytes += entry.num_bytes;
    for (const FileEntry& entry : there.files) {
      const std::string file = absl::StrCat(arriving, entry.path.path.substr(name.size()));
      RETURN_IF_ERROR(disk_.CreateDirectories(DirectoryOf(file)));
      RETURN_IF_ERROR(FetchFile(disk_, file, entry, connection_, [&](size_t num_bytes) {
        progress_.done_bytes += static_cast<int64_t>(num_bytes);
        on_progress_(progress_);
      }));
    }
    RETURN_IF_ERROR(disk_.SyncDirectory(arriving));
    const absl::Status verified = checkpoints::VerifyCheckpoint(disk_, arriving).status();
    if (!verified.ok()) {
      RETURN_IF_ERROR(disk_.RemoveAll(arriving));
      return IsOfContents(verified) ? absl::StatusOr<bool>(false) : verified;
    }
    checkpoints::RemoveDirectory(disk_, located).IgnoreError();  // after an error, Rename() fails
    RETURN_IF_ERROR(disk_.Rename(arriving, located));
    RETURN_IF_ERROR(disk_.SyncDirectory(DirectoryOf(located)));
    return true;
  }

  SummedFileSystem& disk_;
  const MirroredFolders& folders_;
  const int shard_;
  ReplicaConnection& connection_;
  const OnCopyProgress& on_progress_;
  CopyProgress progress_;
};

}  // namespace

absl::Status FetchLostCheckpoints(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                                  const std::vector<FileEntry>& theirs,
                                  ReplicaConnection& connection, const OnCopyProgress& on_progress,
                                  absl::FunctionRef<void(const std::string& text)> tell) {
  ASSIGN_OR_RETURN(const std::vector<FileEntry> ours, folders.List(disk, shard));
  return LostCheckpoints(disk, folders, shard, connection, on_progress).Fetch(ours, theirs, tell);
}

absl::Status SendDifferences(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                             const std::vector<FileEntry>& theirs, ReplicaLane& lane,
                             const OnCopyProgress& on_progress) {
  ASSIGN_OR_RETURN(const std::vector<FileEntry> ours, folders.List(disk, shard));
  return Sending(disk, folders, shard, lane, on_progress).Run(ours, theirs);
}

absl::Status FetchAll(SummedFileSystem& disk, const MirroredFolders& folders, int shard,
                      ReplicaConnection& connection, const OnCopyProgress& on_progress,
                      absl::FunctionRef<void(const std::string& text)> tell) {
  ASSIGN_OR_RETURN(const std::vector<FileEntry> ours, folders.List(disk, shard));
  ASSIGN_OR_RETURN(std::vector<FileEntry> theirs, connection.ListFiles());
  // A manifest makes a checkpoint valid, so manifests are fetched last.
  std::stable_partition(theirs.begin(), theirs.end(),
                        [](const FileEntry& entry) { return !IsManifest(entry); });
  RETURN_IF_ERROR(RemoveJournals(disk, folders, shard, ours));
  RETURN_IF_ERROR(SetOthersAside(disk, folders, shard, ours, theirs, tell));
  CopyProgress progress;
  for (const FileEntry& entry : theirs) progress.all_bytes += entry.num_bytes;
  std::set<std::string> directories;
  for (const MirroredPath& folder : folders.OfShard(shard)) {
    ASSIGN_OR_RETURN(const std::string located, folders.Locate(shard, folder));
    directories.insert(located);
  }
  for (const FileEntry& entry : theirs) {
    ASSIGN_OR_RETURN(const std::string located, folders.Locate(shard, entry.path));
    if (entry.is_directory) {
      RETURN_IF_ERROR(disk.CreateDirectories(located));
      directories.insert(located);
      continue;
    }
    RETURN_IF_ERROR(FetchFile(disk, located, entry, connection, [&](size_t num_bytes) {
      progress.done_bytes += static_cast<int64_t>(num_bytes);
      on_progress(progress);
    }));
  }
  for (const std::string& directory : directories) RETURN_IF_ERROR(disk.SyncDirectory(directory));
  return absl::OkStatus();
}

}  // namespace lodestar::replica
