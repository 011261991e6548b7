// The server's side of a replicated journal: what it writes is on its own disk and on the replica's
// before anybody is told of it. While the replica does not answer, nothing is written; once it
// answers again it gets what it lacks, and all goes on.
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
#include "common/clock.h"
#include "common/file_system.h"
#include "server/replica/folder_copy.h"
#include "server/replica/mirrored_folders.h"
#include "server/replica/replica_connection.h"
#include "server/replica/replication_mark.h"
#include "server/replica/summed_file_system.h"

namespace lodestar {

// Thread-safe.
class Replication {
 public:
  struct Config {
    int shard = 0;
    int num_shards = 1;
    std::string journal_dir;     // folders of the shard in it are there, and nobody else's
    std::string checkpoint_dir;  // copied if the replica keeps checkpoints
    std::string replica;         // HOST:PORT, for people
    std::string server;          // this one, for people
    uint64_t term = 0;           // random
    ReplicationPlan plan;
  };
  // Not owned, where it is a pointer; outlives the replication.
  struct Deps {
    FileSystem* disk = nullptr;
    Clock* clock = &Clock::Real();
    std::function<std::unique_ptr<ReplicaConnection>()> connect;
    std::function<uint64_t()> random_id;  // not 0
    // Whether the folders are still this server's. Asked before it connects again.
    std::function<absl::Status()> confirm = [] { return absl::OkStatus(); };
    std::function<std::string()> now = [] { return std::string(); };  // for people
    // The replica is lost (with why), and has everything again (OK). FailedPrecondition: something
    // is to be mended by people first. Aborted: another server has gone on from it, and this one
    // can write nothing any more. From any thread.
    std::function<void(const absl::Status&)> on_change = [](const absl::Status&) {};
  };

  Replication(Config config, Deps deps);
  ~Replication();

  // Makes both sides equal, unless they are. Blocks for both disks and the network. Errors: see
  // ReplicaConnection; those of the disk. Only one thread at a time.
  absl::Status Connect() ABSL_LOCKS_EXCLUDED(mutex_);
  // Does so if the replica is lost; else sees whether it is. Errors: state().
  absl::Status Look();
  // From here on looks every second, and soon after the replica was lost.
  void KeepConnected();
  // Whoever waits for the replica gets Cancelled, and so do all later ones. Blocks while both sides
  // are being compared. For one thread.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

  // OK while the replica has everything; else why not, or how far it is.
  absl::Status state() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The disk as it is for what must be on both sides. Changes to other files are of this disk only.
  // Each result has changes in order with each other only: one for every thread that writes. Not
  // after KeepConnected(). Lives as long as the replication.
  FileSystem* AddDisk();

 private:
  class Disk;
  class File;

  // Of all that may be under way at a time: while one lives the two sides are not compared.
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
    // What was done on this disk, for the replica. An error loses the replica.
    absl::Status Send(FileChange change);
    // The same, and the replica has done all.
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
  // Of a connection that may have been replaced since.
  void Lose(uint64_t connection, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Names it.
  absl::Status OfReplica(const absl::Status& status) const;
  // What `path` is to the replica; nothing if that has no copy of it.
  std::optional<MirroredPath> Find(const std::string& path) const ABSL_LOCKS_EXCLUDED(mutex_);
  // What is damaged here, older, or gone must not take the place of what the replica has. Errors:
  // FailedPrecondition saying what to do.
  absl::Status CheckJournals(const MirroredFolders& folders, ReplicaConnection& connection,
                             const std::vector<FileEntry>& theirs) const;
  absl::Status CheckJournal(const std::string& folder, uint64_t durable_there) const;
  absl::Status Equalise(ReplicaConnection& connection) ABSL_LOCKS_EXCLUDED(mutex_);
  // The term has begun, or is asked for.
  absl::Status WriteMark(bool has_begun, bool is_whole);
  void SetState(absl::Status state) ABSL_LOCKS_EXCLUDED(mutex_);
  // An answer that is lost never comes, whatever the connection says.
  absl::Status CheckAnswers() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Watch() ABSL_LOCKS_EXCLUDED(mutex_);
  std::string JournalFolder() const;

  const Config config_;
  const Deps deps_;
  mutable SummedFileSystem here_;
  std::vector<std::unique_ptr<Disk>> disks_;

  // Of Connect() only.
  bool has_fetched_ = false;  // something of what the replica has
  bool has_begun_ = false;    // both sides were equal, and the term is the replica's
  absl::Status refused_;      // by which the last attempt has failed

  mutable absl::Mutex mutex_;
  std::shared_ptr<const MirroredFolders> folders_ ABSL_GUARDED_BY(mutex_);
  absl::Status state_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_connections_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<ReplicaConnection> connection_ ABSL_GUARDED_BY(mutex_);    // the last of them
  std::vector<std::shared_ptr<ReplicaLane>> lanes_ ABSL_GUARDED_BY(mutex_);  // one for each disk
  int num_passes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<const Pass*, absl::Time> awaited_since_ ABSL_GUARDED_BY(mutex_);  // answers
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  // Another server has gone on from the replica. For good: it may be empty when it is asked next.
  bool is_superseded_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_lost_ ABSL_GUARDED_BY(mutex_) = false;  // since it was last looked for
  std::atomic<uint64_t> last_file_ = 0;
  std::thread watch_;
};

}  // namespace lodestar
