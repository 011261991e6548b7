// SPDX-License-Identifier: Apache-2.0

#include "server/durability/replica/replica_store.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/params/shard_plan.h"
#include "common/runtime/status_macros.h"
#include "server/checkpoint/checkpoint_folder.h"

namespace lodestar::replica {
namespace {

// Maximum number of open files of a lane. A lane needs fewer: a segment and the files of one
// checkpoint.
constexpr size_t kMaxOpenFiles = 64;
// Limits of a request to begin a term: bytes of the server's name, and number of previous terms.
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxPrevious = 10'000;
// If a server has not called for this time, it is assumed to have ended. A server without a journal
// may then begin a term. A running server calls once a second.
constexpr absl::Duration kSilence = absl::Seconds(5);

}  // namespace

absl::Status ReplicaStore::Open() {
  RETURN_IF_ERROR(disk_.CreateDirectories(folders_.journal_dir()));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, disk_.List(folders_.journal_dir()));
  for (const std::string& name : names) {
    absl::string_view digits = name;
    int shard = 0;
    if (!absl::ConsumePrefix(&digits, "shard-") || !absl::SimpleAtoi(digits, &shard)) continue;
    Member& member = MemberOf(shard);
    absl::MutexLock lock(&member.mutex);
    RETURN_IF_ERROR(Claim(shard, member));
  }
  return absl::OkStatus();
}

std::string ReplicaStore::JournalFolder(int shard) const {
  return absl::StrCat(folders_.journal_dir(), "/shard-", shard);
}

ReplicaStore::Member& ReplicaStore::MemberOf(int shard) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<Member>& member = members_[shard];
  if (member == nullptr) member = std::make_shared<Member>();
  return *member;
}

std::shared_ptr<ReplicaStore::Member> ReplicaStore::FindMember(int shard) const {
  absl::MutexLock lock(&mutex_);
  const auto found = members_.find(shard);
  return found == members_.end() ? nullptr : found->second;
}

std::vector<ReplicaStore::Copy> ReplicaStore::copies() const {
  // A member may be locked for long, because it waits for its disk. So `mutex_` is not held while
  // the members are read.
  std::vector<std::pair<int, Member*>> members;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [shard, member] : members_) members.emplace_back(shard, member.get());
  }
  std::vector<Copy> copies;
  for (const auto& [shard, member] : members) {
    absl::ReaderMutexLock reading(&member->mutex);
    if (member->mark.has_value()) copies.push_back({shard, *member->mark});
  }
  return copies;
}

bool ReplicaStore::HasWhole(int shard) const {
  const std::shared_ptr<Member> member = FindMember(shard);
  if (member == nullptr) return false;
  absl::ReaderMutexLock lock(&member->mutex);
  return member->mark.has_value() && member->mark->is_whole;
}

bool ReplicaStore::HasLatest(int shard) const {
  const std::shared_ptr<Member> member = FindMember(shard);
  if (member == nullptr) return false;
  absl::ReaderMutexLock lock(&member->mutex);
  return member->connection != 0 && member->mark->is_whole;
}

absl::Status ReplicaStore::Claim(int shard, Member& member) {
  if (!member.locks.empty()) return absl::OkStatus();
  std::vector<Deps::Lock> locks;
  for (const MirroredPath& path : folders_.OfShard(shard)) {
    ASSIGN_OR_RETURN(const std::string folder, folders_.Locate(shard, path));
    RETURN_IF_ERROR(checkpoint::TryCheckpointFolder(disk_, folder, /*checkpoint_bytes=*/0,
                                                    /*num_checkpoints=*/0)
                        .status());
    ASSIGN_OR_RETURN(locks.emplace_back(), deps_.lock(folder));
  }
  const std::string folder = JournalFolder(shard);
  ASSIGN_OR_RETURN(std::optional<ReplicationMark> mark, ReadReplicationMark(disk_, folder));
  bool is_servers = mark.has_value() && mark->side == ReplicationSide::kServer;
  if (!mark.has_value()) {
    ASSIGN_OR_RETURN(const std::vector<FileEntry> entries, folders_.List(disk_, shard));
    is_servers = !entries.empty();
  }
  if (is_servers) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder,
                     " belongs to a server, not to a replica. Start without --replica, or give the "
                     "replica other folders"));
  }
  member.mark = std::move(mark);
  member.locks = std::move(locks);
  return absl::OkStatus();
}

absl::StatusOr<TermGrant> ReplicaStore::BeginTerm(const TermRequest& request) {
  if (request.shard < 0 || request.shard >= request.num_shards ||
      request.num_shards > params::kMaxServers || request.term == 0 || request.connection == 0 ||
      request.server.size() > kMaxNameBytes || request.previous.size() > kMaxPrevious) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the server asks to write shard ", request.shard, " of ", request.num_shards, " in term ",
        request.term,
        ", which is not a valid request. Use the same release for the server and the replica"));
  }
  const std::string& kept = folders_.checkpoint_dir();
  if (!kept.empty() && request.num_shards > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the replica has --checkpoint_dir=", kept, ", but the checkpoints of ", request.num_shards,
        " servers must be in one folder that all servers share. Start the replica without the "
        "flag, and keep that folder on a disk that survives their machines"));
  }
  Member& member = MemberOf(request.shard);
  absl::MutexLock lock(&member.mutex);
  RETURN_IF_ERROR(Claim(request.shard, member));
  // A server with a journal holds that journal's lock, so the earlier server has ended. A server
  // without files may belong to another job. It may begin a term only if no other server writes.
  if (request.has_nothing && member.mark.has_value() && member.mark->term != request.term) {
    RETURN_IF_ERROR(CheckIsIdle(member));
  }
  ASSIGN_OR_RETURN(const TermVerdict verdict, JudgeTerm(member.mark, request));
  ReplicationMark mark;
  mark.side = ReplicationSide::kReplica;
  mark.term = request.term;
  mark.is_whole = member.mark.has_value() && member.mark->is_whole;
  mark.peer = request.server;
  mark.since = deps_.now();
  const absl::Status written = WriteReplicationMark(disk_, JournalFolder(request.shard), mark);
  // The folder may be missing because its disk is not mounted. The server must then try again
  // later.
  if (absl::IsNotFound(written)) return absl::UnavailableError(written.message());
  RETURN_IF_ERROR(written);
  member.mark = std::move(mark);
  member.connection = request.connection;
  member.heard_at_ns = absl::ToUnixNanos(deps_.clock->Now());
  return TermGrant{.verdict = verdict, .keeps_checkpoints = !kept.empty()};
}

absl::Status ReplicaStore::CheckIsIdle(const Member& member) const {
  const absl::Duration silence =
      deps_.clock->Now() - absl::FromUnixNanos(member.heard_at_ns.load());
  if (member.num_lanes == 0 || silence >= kSilence) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the server on ", member.mark->peer, " has written to this replica since ",
                   member.mark->since,
                   ". Another server without a journal cannot use this replica while that server "
                   "runs. Give each job a replica of its own, or end the server that writes here"));
}

absl::Status ReplicaStore::Check(const Member& member, Term term) const {
  const bool is_of_term = member.mark.has_value() && member.mark->term == term.id;
  if (is_of_term && member.connection == term.connection) return absl::OkStatus();
  if (is_of_term) {
    return absl::UnavailableError(
        member.connection == 0
            ? "the replica was started again, so the server must connect to it again"
            : "the server has made a new connection, which replaces this one");
  }
  return absl::AbortedError(absl::StrCat(
      "this server may not write to its replica any more, because another server now writes shard ",
      term.shard, " there",
      member.mark.has_value()
          ? absl::StrCat(": the server on ", member.mark->peer, ", since ", member.mark->since)
          : ""));
}

absl::Status ReplicaStore::CheckTerm(Term term) {
  const std::shared_ptr<Member> member = FindMember(term.shard);
  if (member == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("the replica has no copy of shard ", term.shard, " yet"));
  }
  absl::ReaderMutexLock lock(&member->mutex);
  RETURN_IF_ERROR(Check(*member, term));
  member->heard_at_ns = absl::ToUnixNanos(deps_.clock->Now());
  return absl::OkStatus();
}

// No lock is held, so another term may begin during ListFiles().
absl::StatusOr<std::vector<FileEntry>> ReplicaStore::ListFiles(Term term) {
  RETURN_IF_ERROR(CheckTerm(term));
  ASSIGN_OR_RETURN(std::vector<FileEntry> entries, folders_.List(disk_, term.shard));
  RETURN_IF_ERROR(SyncAll(term.shard, entries));
  return entries;
}

absl::Status ReplicaStore::SyncAll(int shard, const std::vector<FileEntry>& entries) {
  std::vector<std::string> directories;
  for (const MirroredPath& folder : folders_.OfShard(shard)) {
    ASSIGN_OR_RETURN(directories.emplace_back(), folders_.Locate(shard, folder));
  }
  for (const FileEntry& entry : entries) {
    ASSIGN_OR_RETURN(const std::string path, folders_.Locate(shard, entry.path));
    if (entry.is_directory) {
      directories.push_back(path);
    } else if (!disk_.IsSynced(path)) {
      ASSIGN_OR_RETURN(const std::unique_ptr<storage::WritableFile> file,
                       disk_.Create(path, storage::FileSystem::IfExists::kGoOn));
      RETURN_IF_ERROR(file->Sync());
      RETURN_IF_ERROR(file->Close());
    }
  }
  for (const std::string& directory : directories) {
    RETURN_IF_ERROR(disk_.SyncDirectory(directory));
  }
  return absl::OkStatus();
}

absl::Status ReplicaStore::ReadFile(Term term, const MirroredPath& path,
                                    absl::FunctionRef<absl::Status(absl::string_view block)> take) {
  RETURN_IF_ERROR(CheckTerm(term));
  ASSIGN_OR_RETURN(const std::string located, folders_.Locate(term.shard, path));
  return disk_.Read(located, take);
}

absl::StatusOr<std::unique_ptr<ReplicaStore::Lane>> ReplicaStore::OpenLane(Term term) {
  RETURN_IF_ERROR(CheckTerm(term));
  return std::unique_ptr<Lane>(new Lane(this, FindMember(term.shard), term));
}

ReplicaStore::Lane::Lane(ReplicaStore* store, std::shared_ptr<Member> member, Term term)
    : store_(store), member_(std::move(member)), term_(term) {
  ++member_->num_lanes;
}

ReplicaStore::Lane::~Lane() { --member_->num_lanes; }

absl::Status ReplicaStore::Lane::Carry(const FileChange& change) {
  RETURN_IF_ERROR(status_);
  status_ = std::visit([this](const auto& kind) { return DoInTerm(kind); }, change);
  return status_;
}

template <typename Change>
absl::Status ReplicaStore::Lane::DoInTerm(const Change& change) {
  // BeginTerm() waits until this change is done, because it takes this mutex exclusively.
  absl::ReaderMutexLock lock(&member_->mutex);
  RETURN_IF_ERROR(store_->Check(*member_, term_));
  return Do(change);
}

absl::Status ReplicaStore::Lane::DoInTerm(const CopyIsWholeChange&) {
  absl::MutexLock lock(&member_->mutex);
  RETURN_IF_ERROR(store_->Check(*member_, term_));
  if (member_->mark->is_whole) return absl::OkStatus();
  ReplicationMark mark = *member_->mark;
  mark.is_whole = true;
  RETURN_IF_ERROR(WriteReplicationMark(disk(), store_->JournalFolder(term_.shard), mark));
  member_->mark = std::move(mark);
  return absl::OkStatus();
}

storage::FileSystem& ReplicaStore::Lane::disk() const { return store_->disk_; }

absl::StatusOr<std::string> ReplicaStore::Lane::Locate(const MirroredPath& path) const {
  return store_->folders_.Locate(term_.shard, path);
}

absl::StatusOr<std::string> ReplicaStore::Lane::LocateBelow(const MirroredPath& path) const {
  return store_->folders_.LocateBelow(term_.shard, path);
}

absl::StatusOr<ReplicaStore::Lane::OpenFile*> ReplicaStore::Lane::FindOpen(uint64_t file) {
  const auto open = files_.find(file);
  if (open != files_.end()) return &open->second;
  return absl::InvalidArgumentError(absl::StrCat("the server writes to file number ", file,
                                                 ", which the replica has not opened"));
}

absl::Status ReplicaStore::Lane::Do(const CreateFileChange& create) {
  if (files_.size() >= kMaxOpenFiles || files_.count(create.file) > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the replica cannot open file number ", create.file,
        ", because the number is in use, or because the server has too many files open"));
  }
  ASSIGN_OR_RETURN(const std::string path, Locate(create.path));
  ASSIGN_OR_RETURN(std::unique_ptr<storage::WritableFile> file,
                   disk().Create(path, create.goes_on ? storage::FileSystem::IfExists::kGoOn
                                                      : storage::FileSystem::IfExists::kTruncate));
  files_[create.file] = {std::move(file), path};
  return absl::OkStatus();
}

absl::Status ReplicaStore::Lane::Do(const AppendChange& append) {
  ASSIGN_OR_RETURN(OpenFile* const open, FindOpen(append.file));
  return open->file->Append(append.bytes);
}

absl::Status ReplicaStore::Lane::Do(const SyncFileChange& sync) {
  ASSIGN_OR_RETURN(OpenFile* const open, FindOpen(sync.file));
  RETURN_IF_ERROR(open->file->Sync());
  // If another program has removed the file, a later server could not read its contents.
  if (disk().Exists(open->path)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(open->path, " is gone: another program removed it while it was written"));
}

absl::Status ReplicaStore::Lane::Do(const CloseFileChange& close) {
  ASSIGN_OR_RETURN(OpenFile* const open, FindOpen(close.file));
  const absl::Status closed = open->file->Close();
  files_.erase(close.file);
  return closed;
}

absl::Status ReplicaStore::Lane::Do(const CreateDirectoriesChange& create) {
  ASSIGN_OR_RETURN(const std::string path, Locate(create.path));
  return disk().CreateDirectories(path);
}

absl::Status ReplicaStore::Lane::Do(const RenameChange& rename) {
  ASSIGN_OR_RETURN(const std::string from, LocateBelow(rename.from));
  ASSIGN_OR_RETURN(const std::string to, LocateBelow(rename.to));
  RETURN_IF_ERROR(disk().Rename(from, to));
  for (auto& [number, open] : files_) {
    if (open.path == from || absl::StartsWith(open.path, absl::StrCat(from, "/"))) {
      open.path.replace(0, from.size(), to);
    }
  }
  return absl::OkStatus();
}

absl::Status ReplicaStore::Lane::Do(const RemoveChange& remove) {
  ASSIGN_OR_RETURN(const std::string path, LocateBelow(remove.path));
  return disk().RemoveAll(path);
}

absl::Status ReplicaStore::Lane::Do(const SyncDirectoryChange& sync) {
  ASSIGN_OR_RETURN(const std::string path, Locate(sync.path));
  return disk().SyncDirectory(path);
}

}  // namespace lodestar::replica
