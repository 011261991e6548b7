// The server's side of a replicated journal. What the server writes is on its own disk and on the
// replica's before the server tells any other program of it. While the replica does not answer,
// nothing is written. Once it answers again, it gets what it lacks, and the server goes on.
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

// Thread-safe.
class Replication {
 public:
  struct Config {
    int shard = 0;
    int num_shards = 1;
    // The shard's folders in it are there, and no other process uses them.
    std::string journal_dir;
    std::string checkpoint_dir;  // It is copied if the replica keeps checkpoints.
    std::string replica;         // HOST:PORT of the replica, for people.
    std::string server;          // Names this server, for people.
    uint64_t term = 0;           // A random number.
    ReplicationPlan plan;
  };
  // The pointers are not owned, and what they point to outlives the replication.
  struct Deps {
    FileSystem* disk = nullptr;
    Clock* clock = &Clock::Real();
    std::function<std::unique_ptr<ReplicaConnection>()> connect;
    std::function<uint64_t()> random_id;  // It never returns 0.
    // Confirms that the folders still belong to this server. It is called before the server
    // connects again.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    // Returns the time as a text for people.
    std::function<std::string()> now = [] { return std::string(); };
    // Is called from any thread with why the replica is lost, and with OK once the replica has
    // everything again. FailedPrecondition means that an operator must mend something first.
    // Aborted means that another server has gone on from the replica, and this one can write
    // nothing any more.
    std::function<void(const absl::Status&)> on_change = [](const absl::Status&) {};
  };

  Replication(Config config, Deps deps);
  ~Replication();

  // Makes both sides equal, unless they are. Blocks for both disks and the network. Errors: see
  // ReplicaConnection; those of the disk. Only one thread at a time.
  absl::Status Connect() ABSL_LOCKS_EXCLUDED(mutex_);
  // Connects if the replica is lost. Otherwise checks whether it is lost. Errors: state().
  absl::Status Look();
  // Starts a thread that looks every second, and soon after the replica was lost.
  void KeepConnected();
  // Makes all threads that wait for the replica return Cancelled, and all later ones. Blocks while
  // both sides are being compared. For one thread.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

  // OK while the replica has everything. Otherwise it says why not, or how far the copy is.
  absl::Status state() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns a disk for what must be on both sides. Changes to files that the replica has no copy of
  // are made on this disk only. Each result keeps the order of its own changes only, so every
  // thread that writes needs one. Must not be called after KeepConnected(). The disk lives as long
  // as the replication.
  FileSystem* AddDisk();

 private:
  class Disk;
  class File;

  // Every change that is under way holds a pass. While a pass lives the two sides are not compared.
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
    // Sends to the replica what was done on this disk. If that fails, the replica counts as lost.
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

  // Errors: state().
  absl::StatusOr<Pass> Enter(size_t disk) ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  // Marks the replica as lost, unless `connection` has been replaced since.
  void Lose(uint64_t connection, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns `status` with the name of the replica.
  absl::Status OfReplica(const absl::Status& status) const;
  // Returns what `path` is called on the replica, or nothing if the replica has no copy of it.
  std::optional<MirroredPath> Find(const std::string& path) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Checks the journals here, because one that is damaged, older or gone must not take the place of
  // the replica's. Errors: FailedPrecondition saying what to do.
  absl::Status CheckJournals(const MirroredFolders& folders, ReplicaConnection& connection,
                             const std::vector<FileEntry>& theirs) const;
  absl::Status CheckJournal(const std::string& folder, uint64_t durable_there) const;
  absl::Status Equalise(ReplicaConnection& connection) ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes that the term has begun, or that it was asked for.
  absl::Status WriteMark(bool has_begun, bool is_whole);
  void SetState(absl::Status state) ABSL_LOCKS_EXCLUDED(mutex_);
  // Checks that no answer is lost. A lost answer never comes, whatever the connection says. Errors:
  // Unavailable.
  absl::Status CheckAnswers() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Watch() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string JournalFolder() const;

  const Config config_;
  const Deps deps_;
  mutable SummedFileSystem here_;
  std::vector<std::unique_ptr<Disk>> disks_;

  // Only Connect() uses the members from here to refused_.
  bool has_fetched_ = false;  // Whether anything of what the replica has was taken.
  bool has_begun_ = false;    // Whether both sides were equal, and the term is the replica's.
  absl::Status refused_;      // The error that the last attempt has ended with.

  mutable absl::Mutex mutex_;
  std::shared_ptr<const MirroredFolders> folders_ ABSL_GUARDED_BY(mutex_);
  absl::Status state_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_connections_ ABSL_GUARDED_BY(mutex_) = 0;
  // The last of the connections.
  std::shared_ptr<ReplicaConnection> connection_ ABSL_GUARDED_BY(mutex_);
  // There is one for each disk.
  std::vector<std::shared_ptr<ReplicaLane>> lanes_ ABSL_GUARDED_BY(mutex_);
  int num_passes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Since when each pass waits for an answer.
  std::map<const Pass*, absl::Time> awaited_since_ ABSL_GUARDED_BY(mutex_);
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether another server has gone on from the replica. It stays true, because the replica may be
  // empty when it is asked next.
  bool is_superseded_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_lost_ ABSL_GUARDED_BY(mutex_) = false;  // Whether it was lost since Watch() looked last.
  std::atomic<uint64_t> last_file_ = 0;
  std::thread watch_;
};

}  // namespace lodestar::replica
