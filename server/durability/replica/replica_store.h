// SPDX-License-Identifier: Apache-2.0

// ReplicaStore does the work of a replica. It has copies of the journals of the servers that write
// to it, and optionally of their checkpoints. A server can be started with the copies as its files.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/clock.h"
#include "common/storage/file_system.h"
#include "server/durability/replica/file_change.h"
#include "server/durability/replica/mirrored_folders.h"
#include "server/durability/replica/replica_connection.h"
#include "server/durability/replica/replication_mark.h"
#include "server/durability/replica/summed_file_system.h"

namespace lodestar::replica {

// ReplicaStore is thread-safe. All calls block for the disk.
class ReplicaStore {
  struct Member;

 public:
  // The pointers are not owned, and their objects must outlive the store.
  struct Deps {
    storage::FileSystem* disk = nullptr;
    Clock* clock = &Clock::Real();
    // Locks an existing folder until the returned object is destroyed.
    using Lock = std::shared_ptr<void>;
    std::function<absl::StatusOr<Lock>(const std::string& folder)> lock =
        [](const std::string&) -> absl::StatusOr<Lock> { return Lock(); };
    std::function<std::string()> now = [] { return std::string(); };  // time as text, for operators
  };

  // A Term names one connection of one server. Only changes that come over it are accepted.
  struct Term {
    int shard = 0;
    uint64_t id = 0;
    uint64_t connection = 0;
  };

  // A Lane carries out the changes of one ReplicaLane, in order. Only one thread may use it.
  class Lane {
   public:
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    // Makes a change. After an error, no further change is made. Errors: Aborted (the term is
    // over); InvalidArgument (no Lodestar server sends such a change); those of the disk.
    absl::Status Carry(const FileChange& change);

   private:
    friend class ReplicaStore;
    Lane(ReplicaStore* store, std::shared_ptr<Member> member, Term term);
    template <typename Change>
    absl::Status DoInTerm(const Change& change);
    absl::Status DoInTerm(const CopyIsWholeChange& is_whole);
    absl::Status Do(const CreateFileChange& create);
    absl::Status Do(const AppendChange& append);
    absl::Status Do(const SyncFileChange& sync);
    absl::Status Do(const CloseFileChange& close);
    absl::Status Do(const CreateDirectoriesChange& create);
    absl::Status Do(const RenameChange& rename);
    absl::Status Do(const RemoveChange& remove);
    absl::Status Do(const SyncDirectoryChange& sync);
    storage::FileSystem& disk() const;
    absl::StatusOr<std::string> Locate(const MirroredPath& path) const;
    absl::StatusOr<std::string> LocateBelow(const MirroredPath& path) const;
    ReplicaStore* const store_;
    const std::shared_ptr<Member> member_;
    const Term term_;
    absl::Status status_;
    struct OpenFile {
      std::unique_ptr<storage::WritableFile> file;
      std::string path;
    };
    absl::StatusOr<OpenFile*> FindOpen(uint64_t file);
    std::map<uint64_t, OpenFile> files_;
  };

  // Describes a copy for the status page.
  struct Copy {
    int shard = 0;
    ReplicationMark mark;
  };

  ReplicaStore(MirroredFolders folders, Deps deps)
      : folders_(std::move(folders)), deps_(std::move(deps)), disk_(deps_.disk) {}

  // Locks the folders of all shards that the journal folder has copies of. Errors: AlreadyExists
  // (names the process that uses a folder); FailedPrecondition (the files are a server's, not a
  // replica's).
  absl::Status Open();

  // Begins a term: see ReplicaConnection::BeginTerm(). Errors also: Unavailable (a server without a
  // journal asks while another server writes).
  absl::StatusOr<TermGrant> BeginTerm(const TermRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // The next four functions have these errors: Aborted (the term is over); Unavailable (the replica
  // has restarted, or the server has a newer connection).
  absl::Status CheckTerm(Term term);
  absl::StatusOr<std::vector<FileEntry>> ListFiles(Term term);
  absl::Status ReadFile(Term term, const MirroredPath& path,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take);
  absl::StatusOr<std::unique_ptr<Lane>> OpenLane(Term term);

  std::vector<Copy> copies() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if the copy of this shard is complete, so that a server could resume from it.
  bool HasWhole(int shard) const;
  // Returns true if HasWhole(), and a server has begun a term since this process started. So no
  // server has written without this copy.
  bool HasLatest(int shard) const;

 private:
  // Syncs the files that may not be on disk yet, for example those of an earlier connection.
  absl::Status SyncAll(int shard, const std::vector<FileEntry>& entries);

  // A Member is the state of one shard. BeginTerm() and CopyIsWholeChange hold `mutex` exclusively.
  // All other changes hold it shared.
  struct Member {
    std::atomic<int> num_lanes = 0;  // number of lanes of all terms
    // Time of the last call of the term's server, in nanoseconds since the epoch.
    std::atomic<int64_t> heard_at_ns = 0;
    absl::Mutex mutex;
    std::optional<ReplicationMark> mark ABSL_GUARDED_BY(mutex);
    // Connection whose changes are accepted. 0 means that no term was begun since this process
    // started.
    uint64_t connection ABSL_GUARDED_BY(mutex) = 0;
    std::vector<Deps::Lock> locks ABSL_GUARDED_BY(mutex);
  };

  Member& MemberOf(int shard) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the state of the shard. Returns null if no call has named the shard yet.
  std::shared_ptr<Member> FindMember(int shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Claim(int shard, Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(member.mutex);
  // Checks that the server of the current term is not writing. Errors: Unavailable (names that
  // server).
  absl::Status CheckIsIdle(const Member& member) const ABSL_SHARED_LOCKS_REQUIRED(member.mutex);
  absl::Status Check(const Member& member, Term term) const
      ABSL_SHARED_LOCKS_REQUIRED(member.mutex);
  std::string JournalFolder(int shard) const;

  const MirroredFolders folders_;
  const Deps deps_;
  mutable SummedFileSystem disk_;
  mutable absl::Mutex mutex_;
  std::map<int, std::shared_ptr<Member>> members_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::replica
