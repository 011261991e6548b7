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
#include "common/http/http_server.h"
#include "common/logging/log_tail.h"
#include "common/logging/logging.h"
#include "common/machine/host_memory.h"
#include "common/runtime/clock.h"
#include "common/runtime/executor.h"
#include "common/storage/file_system.h"
#include "common/storage/folder_lock.h"
#include "server/coordinator/coordinator_memory.h"
#include "server/firewall/connection_table.h"
#include "server/host/checkpoint_command.h"
#include "server/host/checkpoint_keeper.h"
#include "server/host/coordinator_journal.h"
#include "server/host/shard_host.h"
#include "server/rpc/admin_rpc.h"
#include "server/rpc/authority_rpc.h"
#include "server/rpc/cluster_rpc.h"
#include "server/rpc/commanded_shards.h"
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

namespace lodestar::server {

class CoordinatorRole : public host::ShardReports, public host::CheckpointReports {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    FileSystem* disk = &FileSystem::Real();
    // The disk again, with a copy of what is written to it. Null means that there is no copy.
    FileSystem* journal_disk = nullptr;
    FileSystem* checkpoint_disk = nullptr;
    // It is called after each write of the journal, before any other program is told.
    std::function<absl::Status()> confirm_in_charge = [] { return absl::OkStatus(); };
    // It is called now and then during a long task that a signal should end.
    std::function<bool()> is_interrupted = [] { return false; };
    // Returns the memory that the shard of this process may take. Zeros mean that it is not known,
    // and not compared.
    std::function<HostMemory()> read_memory = [] { return HostMemory{}; };
    std::function<firewall::ConnectionCounts()> read_connections = [] {
      return firewall::ConnectionCounts{};
    };
    // See ClusterRpc::Deps.
    std::function<bool(const std::string& peer)> is_open = [](const std::string&) { return true; };
    // See HeldConnections::Deps.
    std::function<firewall::ConnectionState(const std::string& peer)> state_of =
        [](const std::string&) { return firewall::ConnectionState::kUnknown; };
    // See Server::Deps, also for the next member.
    LeaderFence leader = {};
    std::function<absl::Status()> confirm_leader = [] { return absl::OkStatus(); };
    const ServerSecurity* security = nullptr;  // The security of this server.
    std::shared_ptr<limits::RefusalCounts> refusals = std::make_shared<limits::RefusalCounts>();
    const LogTail* log = nullptr;  // See Server::Deps.
    bool is_promoted = false;      // See JournalFacts.
  };

  // Checks that memory and disk will do, locks the folders for checkpoints, and opens
  // --metrics_out. May block for FolderLock::kPatience. Errors: those of Coordinator::Create() and
  // of what is opened; ResourceExhausted; Cancelled once interrupted.
  static absl::StatusOr<std::unique_ptr<CoordinatorRole>> Create(const ServerConfig& config,
                                                                 const Deps& deps);
  ~CoordinatorRole() override;

  // Builds the services around the local shard, which must live until this object is destroyed or
  // Stop() was called. `read_local` measures the shard. Errors also: those of HttpServer::Start().
  absl::Status Start(host::ShardHost* local, std::function<status::ShardReading()> read_local);
  // Takes over the descriptor of a connection that begins as an enrolment does.
  void TakeEnrollment(int descriptor, std::string peer);
  // Adds the services, which are valid after Start().
  void AddServices(grpc::ServerBuilder& builder);
  // Returns a text such as "complete after all 20 rounds" or "stopped after 7 of 20 rounds". It is
  // empty before the end.
  std::string ending();
  // See LostText().
  std::string lost_rounds();
  // Tells the cluster that the local shard is there under `address`, so that it may begin.
  absl::Status AttachLocalShard(const host::ShardHost& local, const std::string& address);
  void RaiseAlarm(const std::string& text, AlarmKind kind);
  // Is called when the process of this life, on this machine, has ended.
  void OnProcessEnded(const WorkerLife& life);
  // Takes the state of the local shard. It is called every second or so.
  void OnStats(const shard::ShardStats& stats);
  // Looks now and then whether the newest checkpoint is there. It is called every second or so,
  // from one thread.
  void LookAtCheckpoint();
  // See CoordinatorStrand.
  void TryJournalAgain() { strand_.TryJournalAgain(); }
  // May be called after Start() has failed. Tells whether the journal is of another number of
  // servers. If it is not, tells whether it is of this job and has rounds that are in no
  // checkpoint.
  bool is_of_former_division() const { return is_of_former_division_; }
  // The site for the uplink, after Start(). Null means that this is no site.
  site::Site* site() { return site_.get(); }

  // Nothing while the job goes on. OK when the job is over and all have been told. Otherwise it
  // says why the job failed.
  std::optional<absl::Status> outcome() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether another server may not have heard of the outcome, and still has time for that.
  bool AwaitsServers();
  bool is_job_done();

  // See Server::SaveAndGoOn().
  void SaveAndGoOn();
  // Turns new workers away from now on.
  void BeginDrain();
  // Brings everything that was done into a checkpoint, because this server was told to stop or the
  // job is over. Blocks until it is published, at most `patience`. Errors: those of
  // TakeLastCheckpoint(); Cancelled once `is_interrupted`, with what is in no checkpoint.
  absl::StatusOr<PublishedCheckpoint> SaveBeforeStop(absl::Duration patience,
                                                     const std::function<bool()>& is_interrupted);
  // See Server::SaveWithoutWorkers().
  absl::StatusOr<PublishedCheckpoint> SaveWithoutWorkers(
      const std::function<bool()>& is_interrupted);
  // Blocks until --on_checkpoint is done with all checkpoints; see CheckpointCommand::Finish().
  absl::Status FinishCheckpointCommand(absl::Duration patience,
                                       const std::function<bool()>& is_interrupted);
  // Ends --on_checkpoint, and answers every held call. Afterwards no call reaches the local shard
  // from here.
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
  // Is called when the connection of a life that stays connected has ended.
  void OnConnectionEnded(const WorkerLife& life, const std::string& peer,
                         firewall::ConnectionState end);
  CoordinatorRole(const ServerConfig& config, Deps deps);
  // Checks memory and disk. Before a client brings the layout of its model, neither need is known.
  absl::Status CheckResources();
  // Starts the pages of --http.
  absl::Status StartPages();
  absl::Status OpenFolders(int64_t checkpoint_bytes);
  absl::Status OpenFolder(absl::string_view flag, const std::string& folder,
                          int64_t checkpoint_bytes, int num_checkpoints);
  std::string JournalFolder() const;
  // Makes a coordinator that goes on from the journal, or a new one. Errors: FailedPrecondition if
  // the journal is of a job with other settings; those of files, of CoordinatorMemoryFromRecords()
  // and Create().
  absl::StatusOr<std::unique_ptr<Coordinator>> MakeCoordinator(const host::ShardHost& local);
  // Returns what the journal has. From then on the journal is written. A damaged journal is moved
  // aside, with an alarm.
  absl::StatusOr<std::optional<CoordinatorMemory>> OpenJournal(absl::Time now);
  // Makes the journal's writer. If `damage` is not OK, no process goes on from what is in the
  // folder.
  absl::Status BeginJournal(journal::JournalEnd end, const absl::Status& damage);
  // Blocks until all servers serve what their journals have. Errors: see SaveWithoutWorkers().
  absl::Status AwaitAllServing(const std::function<bool()>& is_interrupted);
  absl::StatusOr<Coordinator::Config> CoordinatorSettings() const;
  host::CheckpointKeeper::Config KeeperSettings() const;
  void MakeAuthorityRpc();
  void MakeCheckpointCommand();
  // Runs --on_checkpoint with the checkpoint that servers go on from, if newer ones were set aside.
  void TellCommandOfSetAside(const WeightsSource& source);
  void CarryOut(Effect effect, const CoordinatorRecord& follows);
  // Returns the facts that the journal is compared with. Blocks for the disk. Errors: those of
  // files.
  absl::StatusOr<JournalFacts> ReadJournalFacts() const;
  v1::ClusterStatus ReadStatus();
  absl::Status Farewell();

  const ServerConfig config_;
  const Deps deps_;
  std::vector<std::string> warnings_;  // They are for the status, once there is one.
  std::vector<std::string> alarms_;    // They are for the status, once there is one.
  absl::Mutex mutex_;
  // Where other programs reach this server. Empty at first.
  std::string address_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_lock_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<FolderLock>> locks_;  // The lock of --checkpoint_dir is the first.
  FolderLock* journal_lock_ = nullptr;  // One of locks_. Null means that there is no journal.
  rpc::CoordinatorStrand
      strand_;  // It stands first, so that it outlives the parts that report to it.
  std::unique_ptr<host::CoordinatorJournal> journal_;  // Null means that there is none.
  CoordinatorRecord found_record_;  // The last record in it when this process began.
  std::string journal_damage_;      // See JournalFacts.
  bool is_of_former_division_ = false;
  std::unique_ptr<ThreadPool> journal_thread_;  // It ends before the journal, whose tasks it runs.
  status::StatusBoard board_;
  ChangeLogger notices_;
  std::function<status::ShardReading()> read_local_;
  const host::ShardHost* local_ = nullptr;
  std::unique_ptr<status::ProgressRecorder> recorder_;
  status::HistoryRecorder history_;
  std::unique_ptr<status::HistoryKeeper>
      history_keeper_;  // Null means that there is no --checkpoint_dir.
  std::unique_ptr<rpc::CommandedShards> shards_;
  std::unique_ptr<site::ServedSite> site_;
  // Null means that there is no --on_checkpoint.
  std::unique_ptr<host::CheckpointCommand> checkpoint_command_;
  std::unique_ptr<ThreadPool> command_thread_;  // It ends before the command, whose tasks it runs.
  std::unique_ptr<host::CheckpointKeeper> checkpoints_;
  absl::Time looks_at_ = absl::InfinitePast();  // When LookAtCheckpoint() looks next.
  // It ends before the keeper, whose tasks it runs.
  ThreadPool checkpoint_thread_{1, "checkpoints"};
  // Null means that nothing follows from connections.
  std::unique_ptr<rpc::HeldConnections> held_connections_;
  std::unique_ptr<rpc::ClusterRpc> cluster_rpc_;
  std::unique_ptr<rpc::StatusRpc> status_rpc_;
  std::unique_ptr<rpc::AdminRpc> admin_rpc_;
  // Null means that this server has no authority of its own.
  std::unique_ptr<rpc::AuthorityRpc> authority_rpc_;
  std::unique_ptr<HttpServer> http_;  // Null means that --http is not given.
  std::string dashboard_url_;         // See AdminRpc. Empty means that there is none.
};

}  // namespace lodestar::server
