// SPDX-License-Identifier: Apache-2.0

// Replication is the server's side of a replicated journal. Everything that the server writes is on
// its own disk and on the replica's disk before the server acknowledges it. If the replica does not
// answer, all writes fail. When it answers again, it first gets what it lacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"
#include "common/storage/file_system.h"
#include "server/durability/replica/folder_copy.h"
#include "server/durability/replica/mirrored_folders.h"
#include "server/durability/replica/replica_connection.h"
#include "server/durability/replica/replication_mark.h"
#include "server/durability/replica/summed_file_system.h"

namespace lodestar::replica {

// Replication is thread-safe.
class Replication {
 public:
  struct Config {
    int shard = 0;
    int num_shards = 1;
    // Folder of the journals. It must have the shard's folders, and no other process may use them.
    std::string journal_dir;
    std::string checkpoint_dir;  // copied if the replica keeps checkpoints
    std::string replica;         // HOST:PORT of the replica, for messages
    std::string server;          // name of this server, for messages
    uint64_t term = 0;           // a random number
    ReplicationPlan plan;
  };
  // The pointers are not owned, and their objects must outlive the replication.
  struct Deps {
    storage::FileSystem* disk = nullptr;
    Clock* clock = &Clock::Real();
    std::function<std::unique_ptr<ReplicaConnection>()> connect;
    std::function<uint64_t()> random_id;  // must never return 0
    // Checks that the folders still belong to this server. Called before each new connection of the
    // term.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    // Returns the current time as a text for operators.
    std::function<std::string()> now = [] { return std::string(); };
    // Called from any thread if the replica is lost or cannot be used, with the reason. Called with
    // OK when the replica has everything again. Reasons:
    // - FailedPrecondition: an operator must first repair something.
    // - Aborted: another server has resumed from the replica. This server can never write again.
    std::function<void(const absl::Status&)> on_change = [](const absl::Status&) {};
  };

  Replication(Config config, Deps deps);
  ~Replication();

  // Connects, and makes both sides equal. Blocks for both disks and the network. Only one thread
  // may call it at a time. Errors: see ReplicaConnection; those of the disk.
  absl::Status Connect() ABSL_LOCKS_EXCLUDED(mutex_);
  // Connects if the replica is lost. Otherwise checks that the replica answers. Errors: state().
  absl::Status Look();
  // Starts a thread that calls Look() every second, and sooner if the replica was lost.
  void KeepConnected();
  // Makes later calls return Cancelled, and waiting calls return an error. Blocks while Connect()
  // compares the two sides. Only one thread may call it.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns OK while the replica has everything. Otherwise returns the reason, or the progress of
  // the copy.
  absl::Status state() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns a disk whose changes are made on both sides. Files that a replica does not copy are
  // changed on this side only. The order of changes is kept only within one disk, so each writing
  // thread needs a disk of its own. Must not be called after KeepConnected(). The disk lives as
  // long as this object.
  storage::FileSystem* AddDisk();

 private:
  class Disk;
  class File;

  // Each change holds a Pass until it is done. Connect() compares the two sides only when no Pass
  // exists.
  class Pass {
   public:
    Pass(Replication* owner, uint64_t connection, std::shared_ptr<ReplicaLane> lane)
        : owner_(owner), connection_(connection), lane_(std::move(lane)) {}
    Pass(Pass&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          connection_(other.connection_),
          lane_(std::move(other.lane_)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass();
    const std::shared_ptr<ReplicaLane>& lane() const { return lane_; }
    // Sends a change to the replica after it was made on this server's disk. If sending fails, the
    // replica counts as lost.
    absl::Status Send(FileChange change);
    // Does the same as Send(), and waits until the replica has made the change.
    absl::Status Do(FileChange change);
    absl::StatusOr<uint64_t> Ask();
    absl::Status Await(uint64_t question);

   private:
    absl::Status Note(const absl::Status& status);

    Replication* owner_;
    uint64_t connection_;
    std::shared_ptr<ReplicaLane> lane_;
  };

  // Begins a change on disks_[disk]. Errors: state().
  absl::StatusOr<Pass> Enter(size_t disk) ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  // Marks the replica as lost, unless a newer connection has replaced `connection`.
  void Lose(uint64_t connection, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns `status` with the name of the replica in its text.
  absl::Status OfReplica(const absl::Status& status) const;
  // Returns where the replica has the file `path`. Returns nothing if the replica does not copy it.
  std::optional<MirroredPath> Find(const std::string& path) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Checks that no journal of this server is damaged, older than the replica's copy, or incomplete.
  // Such a journal must not replace the copy. Errors: FailedPrecondition (says what to do).
  absl::Status CheckJournals(const MirroredFolders& folders, ReplicaConnection& connection,
                             const std::vector<FileEntry>& theirs) const;
  absl::Status CheckJournal(const std::string& folder, uint64_t durable_there) const;
  absl::Status Equalise(ReplicaConnection& connection) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes the mark. `has_begun` says whether the term has begun or was only asked for.
  absl::Status WriteMark(bool has_begun, bool is_whole);
  void SetState(absl::Status state) ABSL_LOCKS_EXCLUDED(mutex_);
  // Checks that no pass has waited for longer than kLongestAnswer. An answer may be lost although
  // the connection works. Errors: Unavailable.
  absl::Status CheckAnswers() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Watch() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string JournalFolder() const;

  const Config config_;
  const Deps deps_;
  mutable SummedFileSystem here_;
  std::vector<std::unique_ptr<Disk>> disks_;

  // Only Connect() uses the members from here to refused_.
  bool has_fetched_ = false;  // true: at least one file of the replica was fetched
  bool has_begun_ = false;    // true: both sides were equal, and the replica has recorded the term
  absl::Status refused_;      // the error of the last attempt

  mutable absl::Mutex mutex_;
  std::shared_ptr<const MirroredFolders> folders_ ABSL_GUARDED_BY(mutex_);
  absl::Status state_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_connections_ ABSL_GUARDED_BY(mutex_) = 0;
  // The latest connection. It may be lost.
  std::shared_ptr<ReplicaConnection> connection_ ABSL_GUARDED_BY(mutex_);
  // One lane for each disk.
  std::vector<std::shared_ptr<ReplicaLane>> lanes_ ABSL_GUARDED_BY(mutex_);
  int num_passes_ ABSL_GUARDED_BY(mutex_) = 0;
  // For each pass that waits for an answer: the time since which it waits.
  std::map<const Pass*, absl::Time> awaited_since_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  // True means that another server has resumed from the replica. It stays true, because the next
  // replica at this address may be empty and would not show it.
  bool is_superseded_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_lost_ ABSL_GUARDED_BY(mutex_) = false;  // true: lost since Watch() looked last
  std::atomic<uint64_t> last_file_ = 0;
  std::thread watch_;
};

}  // namespace lodestar::replica
