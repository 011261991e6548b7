// The replica's side: copies of the journals, and perhaps of the checkpoints, of the servers that
// write to it, as files that a server can be started on.
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
#include "common/clock.h"
#include "common/file_system.h"
#include "server/replica/file_change.h"
#include "server/replica/mirrored_folders.h"
#include "server/replica/replica_connection.h"
#include "server/replica/replication_mark.h"
#include "server/replica/summed_file_system.h"

namespace lodestar {

// Thread-safe. All block for the disk.
class ReplicaStore {
  struct Member;

 public:
  // Not owned, where it is a pointer; outlives the store.
  struct Deps {
    FileSystem* disk = nullptr;
    Clock* clock = &Clock::Real();
    // Claims a folder, which is there, until the result is gone.
    using Lock = std::shared_ptr<void>;
    std::function<absl::StatusOr<Lock>(const std::string& folder)> lock =
        [](const std::string&) -> absl::StatusOr<Lock> { return Lock(); };
    std::function<std::string()> now = [] { return std::string(); };  // for people
  };

  // Whose changes are taken.
  struct Term {
    int shard = 0;
    uint64_t id = 0;
    uint64_t connection = 0;
  };

  // The changes of one lane, in order. For one thread.
  class Lane {
   public:
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    // Errors: Aborted if the term is over; InvalidArgument for what no server of ours sends; those
    // of the disk. After one nothing is carried out any more.
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
    FileSystem& disk() const;
    absl::StatusOr<std::string> Locate(const MirroredPath& path) const;
    absl::StatusOr<std::string> LocateBelow(const MirroredPath& path) const;
    ReplicaStore* const store_;
    const std::shared_ptr<Member> member_;
    const Term term_;
    absl::Status status_;
    struct OpenFile {
      std::unique_ptr<WritableFile> file;
      std::string path;
    };
    absl::StatusOr<OpenFile*> FindOpen(uint64_t file);
    std::map<uint64_t, OpenFile> files_;
  };

  // Of a copy as a status tells of it.
  struct Copy {
    int shard = 0;
    ReplicationMark mark;
  };

  ReplicaStore(MirroredFolders folders, Deps deps)
      : folders_(std::move(folders)), deps_(std::move(deps)), disk_(deps_.disk) {}

  // What is in the journal folder is taken up, so that nobody else begins on it. Errors:
  // AlreadyExists naming who has it; FailedPrecondition if a server, not a replica, has been here.
  absl::Status Open();

  // Errors also: Unavailable for a server that has nothing to go on from while another one writes.
  absl::StatusOr<TermGrant> BeginTerm(const TermRequest& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Errors of these: Aborted if the term is over, Unavailable if its server has connected anew.
  absl::Status CheckTerm(Term term);
  absl::StatusOr<std::vector<FileEntry>> ListFiles(Term term);
  absl::Status ReadFile(Term term, const MirroredPath& path,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take);
  absl::StatusOr<std::unique_ptr<Lane>> OpenLane(Term term);

  std::vector<Copy> copies() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether a server of that shard could go on from its copy.
  bool HasWhole(int shard) const;
  // The same, and no server can have gone on without the copy for as long as this process lives.
  bool HasLatest(int shard) const;

 private:
  // What an earlier connection has left may not be on disk yet.
  absl::Status SyncAll(int shard, const std::vector<FileEntry>& entries);

  // Of one shard. Changes are made with a share of the mutex, terms begin with all of it.
  struct Member {
    std::atomic<int> num_lanes = 0;        // of all terms
    std::atomic<int64_t> heard_at_ns = 0;  // of the server whose term it is; since the epoch
    absl::Mutex mutex;
    std::optional<ReplicationMark> mark ABSL_GUARDED_BY(mutex);
    uint64_t connection ABSL_GUARDED_BY(mutex) = 0;  // that is taken from; 0: none since the start
    std::vector<Deps::Lock> locks ABSL_GUARDED_BY(mutex);
  };

  Member& MemberOf(int shard) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null: nobody has asked for it yet.
  std::shared_ptr<Member> FindMember(int shard) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Claim(int shard, Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(member.mutex);
  // Whether the server whose term it is writes at this moment. Errors: Unavailable naming it.
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

}  // namespace lodestar
