// All that the server of shard 0 has and the others have not: the coordinator on its strand, the
// shards it commands, checkpoints, progress, and the services for workers, operators and other
// servers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/file_system.h"
#include "common/folder_lock.h"
#include "common/host_memory.h"
#include "common/http/http_server.h"
#include "common/log_tail.h"
#include "common/logging.h"
#include "server/coordinator/coordinator_memory.h"
#include "server/host/checkpoint_command.h"
#include "server/host/checkpoint_keeper.h"
#include "server/host/coordinator_journal.h"
#include "server/host/shard_host.h"
#include "server/rpc/admin_rpc.h"
#include "server/rpc/authority_rpc.h"
#include "server/rpc/cluster_rpc.h"
#include "server/rpc/commanded_shards.h"
#include "server/rpc/connection_table.h"
#include "server/rpc/coordinator_strand.h"
#include "server/rpc/held_connections.h"
#include "server/rpc/status_rpc.h"
#include "server/server_config.h"
#include "server/server_security.h"
#include "server/site/served_site.h"
#include "server/status/history_keeper.h"
#include "server/status/history_recorder.h"
#include "server/status/progress_recorder.h"
#include "server/status/status_board.h"

namespace lodestar {

class CoordinatorRole : public ShardReports, public CheckpointReports {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    FileSystem* disk = &FileSystem::Real();
    // The disk again, with a copy of what is written to it; null: without.
    FileSystem* journal_disk = nullptr;
    FileSystem* checkpoint_disk = nullptr;
    // Asked after each write of the journal, before anybody is told.
    std::function<absl::Status()> confirm_in_charge = [] { return absl::OkStatus(); };
    // Asked now and then while something takes long that a signal should end.
    std::function<bool()> is_interrupted = [] { return false; };
    // What the shard of this process may take. Zeros: not known, and not compared.
    std::function<HostMemory()> read_memory = [] { return HostMemory{}; };
    std::function<ConnectionCounts()> read_connections = [] { return ConnectionCounts{}; };
    // See ClusterRpc::Deps.
    std::function<bool(const std::string& peer)> is_open = [](const std::string&) { return true; };
    // See HeldConnections::Deps.
    std::function<ConnectionState(const std::string& peer)> state_of = [](const std::string&) {
      return ConnectionState::kUnknown;
    };
    // See Server::Deps, as the next.
    LeaderFence leader = {};
    std::function<absl::Status()> confirm_leader = [] { return absl::OkStatus(); };
    const ServerSecurity* security = nullptr;  // of this server
    std::shared_ptr<RefusalCounts> refusals = std::make_shared<RefusalCounts>();
    const LogTail* log = nullptr;  // see Server::Deps
    bool is_promoted = false;      // See JournalFacts.
  };

  // Sees whether memory and disk will do, locks the folders for checkpoints, and opens
  // --metrics_out. May block for FolderLock::kPatience. Errors: those of Coordinator::Create() and
  // of what is opened; ResourceExhausted; Cancelled once interrupted.
  static absl::StatusOr<std::unique_ptr<CoordinatorRole>> Create(const ServerConfig& config,
                                                                 const Deps& deps);
  ~CoordinatorRole() override;

  // Builds the services around the local shard, which must live until this object is gone, or
  // Stop() was called. `read_local` measures it. Errors also: those of HttpServer::Start().
  absl::Status Start(ShardHost* local, std::function<ShardReading()> read_local);
  // A connection that begins as an enrolment does; its descriptor is taken over.
  void TakeEnrollment(int descriptor, std::string peer);
  // The services; valid after Start().
  void AddServices(grpc::ServerBuilder& builder);
  // "complete after all 20 rounds", "stopped after 7 of 20 rounds"; empty before the end.
  std::string ending();
  // See LostText().
  std::string lost_rounds();
  // The local shard is there under `address`: the cluster may begin.
  absl::Status AttachLocalShard(const ShardHost& local, const std::string& address);
  void RaiseAlarm(const std::string& text, AlarmKind kind);
  // The process of this life, on this machine, has ended.
  void OnProcessEnded(const WorkerLife& life);
  // Of the local shard, every second or so.
  void OnStats(const ShardStats& stats);
  // Every second or so, from one thread: looks now and then whether the newest checkpoint is there.
  void LookAtCheckpoint();
  // See CoordinatorStrand.
  void TryJournalAgain() { strand_.TryJournalAgain(); }
  // After Start() has failed: whether the journal is of another number of servers, and else of this
  // job, and has rounds that are in no checkpoint.
  bool is_of_former_division() const { return is_of_former_division_; }
  // For the uplink; after Start(). Null: this is no site.
  Site* site() { return site_.get(); }

  // Not set while the job goes on; OK when it is over and all have been told; else why it failed.
  std::optional<absl::Status> outcome() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether another server may not have heard of the outcome, and still has time for that.
  bool AwaitsServers();
  bool is_job_done();

  // See Server::SaveAndGoOn().
  void SaveAndGoOn();
  // No new workers from now on.
  void BeginDrain();
  // This server was told to stop, or the job is over: everything that was done goes into a
  // checkpoint. Blocks until it is published, at most `patience`. Errors: those of
  // TakeLastCheckpoint(); Cancelled once `is_interrupted`, with what is in no checkpoint.
  absl::StatusOr<PublishedCheckpoint> SaveBeforeStop(absl::Duration patience,
                                                     const std::function<bool()>& is_interrupted);
  // See Server::SaveWithoutWorkers().
  absl::StatusOr<PublishedCheckpoint> SaveWithoutWorkers(
      const std::function<bool()>& is_interrupted);
  // Blocks until --on_checkpoint is done with all checkpoints; see CheckpointCommand::Finish().
  absl::Status FinishCheckpointCommand(absl::Duration patience,
                                       const std::function<bool()>& is_interrupted);
  // Ends --on_checkpoint. Answers every held call; afterwards nothing reaches the local shard from
  // here.
  void Stop();

  void OnEvent(ShardEvent event) override;
  void OnContributed(uint64_t server_incarnation, const WorkerLife& life, Round round) override;
  void OnDropped(absl::string_view text) override;
  void OnNotice(absl::string_view text) override;
  void OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice) override;
  void OnCheckpointPublished(const std::string& directory,
                             const absl::StatusOr<PublishedCheckpoint>& published) override;
  void OnCheckpointMarked(bool is_complete, const absl::Status& status) override;
  void OnCheckpointGone(const std::string& path) override;

 private:
  // The connection of a life that stays connected has ended.
  void OnConnectionEnded(const WorkerLife& life, const std::string& peer, ConnectionState end);
  CoordinatorRole(const ServerConfig& config, Deps deps);
  // Before a client brings the layout of its model, neither is known.
  absl::Status CheckResources();
  // --http.
  absl::Status StartPages();
  absl::Status OpenFolders(int64_t checkpoint_bytes);
  absl::Status OpenFolder(absl::string_view flag, const std::string& folder,
                          int64_t checkpoint_bytes, int num_checkpoints);
  std::string JournalFolder() const;
  // One that goes on from the journal, or a new one. Errors: FailedPrecondition if the journal is
  // of a job with other settings; those of files, of CoordinatorMemoryFromRecords() and Create().
  absl::StatusOr<std::unique_ptr<Coordinator>> MakeCoordinator(const ShardHost& local);
  // What the journal has; from here on it is written. A journal that is damaged is moved aside,
  // with an alarm.
  absl::StatusOr<std::optional<CoordinatorMemory>> OpenJournal(absl::Time now);
  // Makes the journal's writer. `damage`: of what is in the folder, which is not gone on from then.
  absl::Status BeginJournal(JournalEnd end, const absl::Status& damage);
  // Blocks until all servers serve what their journals have. Errors: see SaveWithoutWorkers().
  absl::Status AwaitAllServing(const std::function<bool()>& is_interrupted);
  absl::StatusOr<Coordinator::Config> CoordinatorSettings() const;
  CheckpointKeeper::Config KeeperSettings() const;
  void MakeAuthorityRpc();
  void MakeCheckpointCommand();
  void CarryOut(Effect effect, const CoordinatorRecord& follows);
  // What the journal is compared with. Blocks for the disk. Errors: those of files.
  absl::StatusOr<JournalFacts> ReadJournalFacts() const;
  v1::ClusterStatus ReadStatus();
  absl::Status Farewell();

  const ServerConfig config_;
  const Deps deps_;
  std::vector<std::string> warnings_;  // for the status, once there is one
  std::vector<std::string> alarms_;    // likewise
  absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);  // where others reach this server; empty at first
  absl::Status lost_lock_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<FolderLock>> locks_;  // --checkpoint_dir's first
  FolderLock* journal_lock_ = nullptr;              // one of them; null: there is no journal
  CoordinatorStrand strand_;                     // first, so that it outlives whoever reports to it
  std::unique_ptr<CoordinatorJournal> journal_;  // null: none
  CoordinatorRecord found_record_;               // The last one in it when this process began.
  std::string journal_damage_;                   // See JournalFacts.
  bool is_of_former_division_ = false;
  std::unique_ptr<ThreadPool> journal_thread_;  // ends before the journal, whose tasks it runs
  StatusBoard board_;
  ChangeLogger notices_;
  std::function<ShardReading()> read_local_;
  const ShardHost* local_ = nullptr;
  std::unique_ptr<ProgressRecorder> recorder_;
  HistoryRecorder history_;
  std::unique_ptr<HistoryKeeper> history_keeper_;  // null: no --checkpoint_dir
  std::unique_ptr<CommandedShards> shards_;
  std::unique_ptr<ServedSite> site_;
  std::unique_ptr<CheckpointCommand> checkpoint_command_;  // null without --on_checkpoint
  std::unique_ptr<ThreadPool> command_thread_;  // ends before the command, whose tasks it runs
  std::unique_ptr<CheckpointKeeper> checkpoints_;
  absl::Time looks_at_ = absl::InfinitePast();      // Next time, of LookAtCheckpoint().
  ThreadPool checkpoint_thread_{1, "checkpoints"};  // ends before the keeper, whose tasks it runs
  std::unique_ptr<HeldConnections> held_connections_;  // null: nothing follows from connections
  std::unique_ptr<ClusterRpc> cluster_rpc_;
  std::unique_ptr<StatusRpc> status_rpc_;
  std::unique_ptr<AdminRpc> admin_rpc_;
  std::unique_ptr<AuthorityRpc> authority_rpc_;  // null: without an authority of its own
  std::unique_ptr<HttpServer> http_;             // null: --http is not given
  std::string dashboard_url_;                    // see AdminRpc; empty: so, too
};

}  // namespace lodestar
