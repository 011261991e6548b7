// SPDX-License-Identifier: Apache-2.0

// ReplicaStore is the replica's side. It holds copies of the journals, and perhaps of the
// checkpoints, of the servers that write to it. The copies are files that a server can be started
// on.
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

// The class is thread-safe. All calls block for the disk.
class ReplicaStore {
  struct Member;

 public:
  // The pointers are not owned, and their objects must outlive the store.
  struct Deps {
    storage::FileSystem* disk = nullptr;
    Clock* clock = &Clock::Real();
    // Claims an existing folder until the returned lock is destroyed.
    using Lock = std::shared_ptr<void>;
    std::function<absl::StatusOr<Lock>(const std::string& folder)> lock =
        [](const std::string&) -> absl::StatusOr<Lock> { return Lock(); };
    std::function<std::string()> now = [] { return std::string(); };  // time as text, for operators
  };

  // A Term names the server connection whose changes are accepted.
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

    // Carries out a change. After an error no further change is carried out. Errors: Aborted (the
    // term is over); InvalidArgument (a change that no Lodestar server sends); those of the disk.
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

  // Claims the folders of all shards that are in the journal folder, so that no other process uses
  // them. Errors: AlreadyExists, naming the process that uses one; FailedPrecondition (a server,
  // not a replica, has used one).
  absl::Status Open();

  // Begins a term: see ReplicaConnection::BeginTerm(). Errors also: Unavailable (a server without a
  // journal asks while another server writes).
  absl::StatusOr<TermGrant> BeginTerm(const TermRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // The calls from here to OpenLane() have the errors Aborted (the term is over) and Unavailable
  // (its server has connected anew).
  absl::Status CheckTerm(Term term);
  absl::StatusOr<std::vector<FileEntry>> ListFiles(Term term);
  absl::Status ReadFile(Term term, const MirroredPath& path,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take);
  absl::StatusOr<std::unique_ptr<Lane>> OpenLane(Term term);

  std::vector<Copy> copies() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if a server of that shard could go on from its copy.
  bool HasWhole(int shard) const;
  // Returns true if HasWhole(), and if this process knows that no server has gone on without this
  // copy.
  bool HasLatest(int shard) const;

 private:
  // Syncs all files: the files of an earlier connection may not be on disk yet.
  absl::Status SyncAll(int shard, const std::vector<FileEntry>& entries);

  // A Member is the state of one shard. A change holds the mutex shared, and the begin of a term
  // holds it exclusively.
  struct Member {
    std::atomic<int> num_lanes = 0;  // number of lanes of all terms
    // Time at which the server of the term was last heard, in nanoseconds since the epoch.
    std::atomic<int64_t> heard_at_ns = 0;
    absl::Mutex mutex;
    std::optional<ReplicationMark> mark ABSL_GUARDED_BY(mutex);
    // Connection whose changes are accepted. 0 means that there was none since the start.
    uint64_t connection ABSL_GUARDED_BY(mutex) = 0;
    std::vector<Deps::Lock> locks ABSL_GUARDED_BY(mutex);
  };

  Member& MemberOf(int shard) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns null if no call has asked for the shard yet.
  std::shared_ptr<Member> FindMember(int shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Claim(int shard, Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(member.mutex);
  // Checks that the server of the current term does not write at this moment. Errors: Unavailable,
  // naming that server.
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
