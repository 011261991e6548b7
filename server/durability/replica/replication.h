// SPDX-License-Identifier: Apache-2.0

// Replication is the server's side of a replicated journal. What the server writes is on its own
// disk and on the replica's before the server acknowledges it to any program. While the replica
// does not answer, nothing is written. Once it answers again, it gets what it lacks, and the server
// goes on.
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

// The class is thread-safe.
class Replication {
 public:
  struct Config {
    int shard = 0;
    int num_shards = 1;
    // Folder of the journals. The shard's folders in it must exist, and no other process may use
    // them.
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
    // Confirms that the folders still belong to this server. Called before the server connects
    // again.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    // Returns the time as a text for operators.
    std::function<std::string()> now = [] { return std::string(); };
    // Called from any thread with the reason when the replica is lost, and with OK when the replica
    // has everything again. FailedPrecondition means that an operator must first repair something.
    // Aborted means that another server has gone on from the replica, and that this server can
    // never write again.
    std::function<void(const absl::Status&)> on_change = [](const absl::Status&) {};
  };

  Replication(Config config, Deps deps);
  ~Replication();

  // Connects, and makes both sides equal if they differ. Blocks for both disks and the network.
  // Only one thread may call it at a time. Errors: see ReplicaConnection; those of the disk.
  absl::Status Connect() ABSL_LOCKS_EXCLUDED(mutex_);
  // Connects if the replica is lost. Otherwise checks that it still answers. Errors: state().
  absl::Status Look();
  // Starts a thread that calls Look() every second, and soon after the replica was lost.
  void KeepConnected();
  // Makes all threads that wait for the replica return Cancelled, and all later calls too. Blocks
  // while both sides are being compared. Only one thread may call it.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns OK while the replica has everything. Otherwise says why not, or how far the copy is.
  absl::Status state() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns a disk for files that must be on both sides. Files that the replica does not copy are
  // changed on this disk only. Each such disk keeps only the order of its own changes, so every
  // writing thread needs one. Must not be called after KeepConnected(). The disk lives as long as
  // the replication.
  storage::FileSystem* AddDisk();

 private:
  class Disk;
  class File;

  // Every change that is under way holds a Pass. The two sides are not compared while a Pass
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
    // Sends to the replica a change that was made on this disk. If sending fails, the replica
    // counts as lost.
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

  // Begins a change on the disk with the number `disk`. Errors: state().
  absl::StatusOr<Pass> Enter(size_t disk) ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  // Marks the replica as lost, unless `connection` has been replaced since.
  void Lose(uint64_t connection, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns `status` with the name of the replica.
  absl::Status OfReplica(const absl::Status& status) const;
  // Returns the path of `path` on the replica, or nothing if the replica has no copy of it.
  std::optional<MirroredPath> Find(const std::string& path) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Checks the journals here: a journal that is damaged, older or missing must not replace the
  // replica's. Errors: FailedPrecondition, saying what to do.
  absl::Status CheckJournals(const MirroredFolders& folders, ReplicaConnection& connection,
                             const std::vector<FileEntry>& theirs) const;
  absl::Status CheckJournal(const std::string& folder, uint64_t durable_there) const;
  absl::Status Equalise(ReplicaConnection& connection) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes the mark, which says that the term has begun or was asked for.
  absl::Status WriteMark(bool has_begun, bool is_whole);
  void SetState(absl::Status state) ABSL_LOCKS_EXCLUDED(mutex_);
  // Checks that no pass has waited for its answer for too long. A lost answer never comes, even if
  // the connection seems to work. Errors: Unavailable.
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
  // The current connection, or the last one.
  std::shared_ptr<ReplicaConnection> connection_ ABSL_GUARDED_BY(mutex_);
  // One lane for each disk.
  std::vector<std::shared_ptr<ReplicaLane>> lanes_ ABSL_GUARDED_BY(mutex_);
  int num_passes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Time since which each pass waits for an answer.
  std::map<const Pass*, absl::Time> awaited_since_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  // True: another server has gone on from the replica. It stays true, because the replica may be
  // empty when it is asked again.
  bool is_superseded_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_lost_ ABSL_GUARDED_BY(mutex_) = false;  // true: lost since Watch() looked last
  std::atomic<uint64_t> last_file_ = 0;
  std::thread watch_;
};

}  // namespace lodestar::replica
