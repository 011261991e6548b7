// SPDX-License-Identifier: Apache-2.0

// CoordinatorRole holds all that only the server of shard 0 has: the coordinator on its strand, the
// shards that it commands, checkpoints, progress, and the services for workers, operators and other
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
    storage::FileSystem* disk = &storage::FileSystem::Real();
    // Disks to which the journal and the checkpoints are written. They also write to the replica if
    // there is one. Null means `disk`.
    storage::FileSystem* journal_disk = nullptr;
    storage::FileSystem* checkpoint_disk = nullptr;
    // Checks that no other server has taken over from this server. Called after each write to the
    // journal, before the written state is used or acknowledged.
    std::function<absl::Status()> confirm_in_charge = [] { return absl::OkStatus(); };
    // Asked repeatedly during long tasks. If it returns true, the task ends with Cancelled.
    std::function<bool()> is_interrupted = [] { return false; };
    // Returns how much memory this process may use for its shard. If the values are 0, the memory
    // is not known, and not checked.
    std::function<machine::HostMemory()> read_memory = [] { return machine::HostMemory{}; };
    std::function<firewall::ConnectionCounts()> read_connections = [] {
      return firewall::ConnectionCounts{};
    };
    // See ClusterRpc::Deps.
    std::function<bool(const std::string& peer)> is_open = [](const std::string&) { return true; };
    // See HeldConnections::Deps.
    std::function<firewall::ConnectionState(const std::string& peer)> state_of =
        [](const std::string&) { return firewall::ConnectionState::kUnknown; };
    // For these two members see Server::Deps.
    storage::LeaderFence leader = {};
    std::function<absl::Status()> confirm_leader = [] { return absl::OkStatus(); };
    const ServerSecurity* security = nullptr;  // security of this server
    std::shared_ptr<limits::RefusalCounts> refusals = std::make_shared<limits::RefusalCounts>();
    const logging::LogTail* log = nullptr;  // see Server::Deps
    bool is_promoted = false;               // see JournalFacts
  };

  // Checks that memory and disk are sufficient, locks the folders for checkpoints, and opens
  // --metrics_out. Blocks for at most FolderLock::kPatience if a folder is locked. Errors: those of
  // Coordinator::Create(); those of the folders and files; ResourceExhausted (too little memory or
  // disk); Cancelled (interrupted).
  static absl::StatusOr<std::unique_ptr<CoordinatorRole>> Create(const ServerConfig& config,
                                                                 const Deps& deps);
  ~CoordinatorRole() override;

  // Creates the services. `local` is the shard of this server. It must live until Stop() was called
  // or this object is destroyed. `read_local` returns the shard's current measurements. Errors
  // also: those of HttpServer::Start().
  absl::Status Start(host::ShardHost* local, std::function<status::ShardReading()> read_local);
  // Takes over a connection that begins with firewall::kEnrollmentWord. `descriptor` is its socket.
  void TakeEnrollment(int descriptor, std::string peer);
  // Registers the services with `builder`. Must be called after Start().
  void AddServices(grpc::ServerBuilder& builder);
  // Returns a text such as "complete after all 20 rounds" or "stopped after 7 of 20 rounds". It is
  // empty before the end.
  std::string ending();
  // See LostText().
  std::string lost_rounds();
  // Reports to the coordinator that the local shard is ready, and that workers reach it at
  // `address`. The job can begin once all shards are attached.
  absl::Status AttachLocalShard(const host::ShardHost& local, const std::string& address);
  void RaiseAlarm(const std::string& text, coordinator::AlarmKind kind);
  // Must be called when the process of a worker on this machine has ended. `life` is the worker's
  // incarnation.
  void OnProcessEnded(const messages::WorkerLife& life);
  // Passes the statistics of the local shard to the coordinator. Must be called about once a
  // second.
  void OnStats(const shard::ShardStats& stats);
  // Checks that the newest checkpoint exists, once per kCheckpointLook. Must be called about once a
  // second, from one thread.
  void LookAtCheckpoint();
  // See CoordinatorStrand.
  void TryJournalAgain() { strand_.TryJournalAgain(); }
  // Returns true if the journal belongs to this job with another number of servers, and has rounds
  // that are in no checkpoint. May be called after Start() has failed.
  bool is_of_former_division() const { return is_of_former_division_; }
  // Returns the site for the uplink, after Start(). Null means that this server is no site.
  site::Site* site() { return site_.get(); }

  // Returns nothing while the job goes on. Returns OK if the job is over and all participants have
  // been told. Otherwise returns why the job has failed.
  std::optional<absl::Status> outcome() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns true if the job is over and this server should wait until other servers have heard of
  // it.
  bool AwaitsServers();
  bool is_job_done();

  // See Server::SaveAndGoOn().
  void SaveAndGoOn();
  // Refuses new workers from now on.
  void BeginDrain();
  // Takes the last checkpoint, because this server must stop or the job is over. Blocks until the
  // checkpoint is published, for at most `patience`. Errors: those of TakeLastCheckpoint();
  // Cancelled (`is_interrupted`; the text says what is in no checkpoint).
  absl::StatusOr<checkpoints::PublishedCheckpoint> SaveBeforeStop(
      absl::Duration patience, const std::function<bool()>& is_interrupted);
  // See Server::SaveWithoutWorkers().
  absl::StatusOr<checkpoints::PublishedCheckpoint> SaveWithoutWorkers(
      const std::function<bool()>& is_interrupted);
  // Blocks until --on_checkpoint has handled all checkpoints: see CheckpointCommand::Finish().
  absl::Status FinishCheckpointCommand(absl::Duration patience,
                                       const std::function<bool()>& is_interrupted);
  // Ends --on_checkpoint and answers every held call. After Stop(), this object does not use the
  // local shard.
  void Stop();

  void OnEvent(shards::ShardEvent event) override;
  void OnContributed(uint64_t server_incarnation, const messages::WorkerLife& life,
                     Round round) override;
  void OnDropped(absl::string_view text) override;
  void OnNotice(absl::string_view text) override;
  void OnRestoreChosen(const absl::StatusOr<coordinator::RestoreChoice>& choice) override;
  void OnCheckpointPublished(
      const std::string& directory,
      const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) override;
  void OnCheckpointMarked(bool is_complete, const absl::Status& status) override;
  void OnCheckpointGone(const std::string& path) override;

 private:
  // Called when the connection on which the incarnation `life` held its call of StayConnected has
  // ended.
  void OnConnectionEnded(const messages::WorkerLife& life, const std::string& peer,
                         firewall::ConnectionState end);
  CoordinatorRole(const ServerConfig& config, Deps deps);
  // Checks that memory and disk are sufficient. If a client brings the layout of its model, the
  // sizes are not known yet. Then only the folders are checked.
  absl::Status CheckResources();
  // Starts the server of the pages of --http.
  absl::Status StartPages();
  absl::Status OpenFolders(int64_t checkpoint_bytes);
  absl::Status OpenFolder(absl::string_view flag, const std::string& folder,
                          int64_t checkpoint_bytes, int num_checkpoints);
  std::string JournalFolder() const;
  // Returns a coordinator that resumes from the journal, or a new one. Errors: FailedPrecondition
  // (the journal belongs to a job with other settings); those of files, of
  // CoordinatorMemoryFromRecords() and Create().
  absl::StatusOr<std::unique_ptr<coordinator::Coordinator>> MakeCoordinator(
      const host::ShardHost& local);
  // Opens the journal and returns the coordinator's state from it. Returns nothing if the journal
  // is empty or damaged. A damaged journal is replaced when the first record is written.
  absl::StatusOr<std::optional<coordinator::CoordinatorMemory>> OpenJournal(absl::Time now);
  // Creates the journal's writer. If `damage` is not OK, the writer replaces the journal in the
  // folder.
  absl::Status BeginJournal(journal::JournalEnd end, const absl::Status& damage);
  // Blocks until all servers have attached and serve the state in their journals. Errors: see
  // SaveWithoutWorkers().
  absl::Status AwaitAllServing(const std::function<bool()>& is_interrupted);
  absl::StatusOr<coordinator::Coordinator::Config> CoordinatorSettings() const;
  host::CheckpointKeeper::Config KeeperSettings() const;
  void MakeAuthorityRpc();
  void MakeCheckpointCommand();
  // Runs --on_checkpoint with the checkpoint from which the servers resume, if newer checkpoints
  // were renamed because of that, or if --resume names it.
  void TellCommandOfGoingBack(const shards::WeightsSource& source);
  void CarryOut(coordinator::Effect effect, const shards::CoordinatorRecord& follows);
  // Reads from the checkpoints and the journal what the coordinator compares with the servers'
  // journals. Blocks for the disk. Errors: those of files.
  absl::StatusOr<shards::JournalFacts> ReadJournalFacts() const;
  v1::ClusterStatus ReadStatus();
  absl::Status Farewell();

  const ServerConfig config_;
  const Deps deps_;
  std::vector<std::string> warnings_;  // shown in the status once there is a status
  std::vector<std::string> alarms_;    // shown in the status once there is a status
  absl::Mutex mutex_;
  // Address at which other programs reach this server. Empty until it is known.
  std::string address_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_lock_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<storage::FolderLock>>
      locks_;  // the lock of --checkpoint_dir is the first
  storage::FolderLock* journal_lock_ =
      nullptr;  // one of locks_; null means that there is no journal
  rpc::CoordinatorStrand
      strand_;  // declared first, so that it outlives the parts that report to it
  std::unique_ptr<host::CoordinatorJournal> journal_;  // null means that there is none
  shards::CoordinatorRecord found_record_;  // last record in the journal when this process began
  std::string journal_damage_;              // see JournalFacts
  bool is_of_former_division_ = false;
  std::unique_ptr<ThreadPool> journal_thread_;  // runs the journal's tasks; destroyed first
  status::StatusBoard board_;
  logging::ChangeLogger notices_;
  std::function<status::ShardReading()> read_local_;
  const host::ShardHost* local_ = nullptr;
  std::unique_ptr<status::ProgressRecorder> recorder_;
  status::HistoryRecorder history_;
  std::unique_ptr<status::HistoryKeeper>
      history_keeper_;  // null means that there is no --checkpoint_dir
  std::unique_ptr<rpc::CommandedShards> shards_;
  std::unique_ptr<site::ServedSite> site_;
  // Runs the command of --on_checkpoint. Null means that this flag is not given.
  std::unique_ptr<host::CheckpointCommand> checkpoint_command_;
  std::unique_ptr<ThreadPool> command_thread_;  // runs the command's tasks; destroyed first
  std::unique_ptr<host::CheckpointKeeper> checkpoints_;
  absl::Time looks_at_ = absl::InfinitePast();  // time of LookAtCheckpoint()'s next check
  // Runs the tasks of checkpoints_. Declared after it, so that the thread is destroyed first.
  ThreadPool checkpoint_thread_{1, "checkpoints"};
  // Holds the calls of StayConnected. Null means that no such call is held, and that the
  // coordinator is not told of ended connections.
  std::unique_ptr<rpc::HeldConnections> held_connections_;
  std::unique_ptr<rpc::ClusterRpc> cluster_rpc_;
  std::unique_ptr<rpc::StatusRpc> status_rpc_;
  std::unique_ptr<rpc::AdminRpc> admin_rpc_;
  // Serves the requests to the cluster's authority. Null means that this server has no authority.
  std::unique_ptr<rpc::AuthorityRpc> authority_rpc_;
  std::unique_ptr<http::HttpServer> http_;  // null means that --http is not given
  std::string dashboard_url_;               // see AdminRpc; empty means that there is none
};

}  // namespace lodestar::server
