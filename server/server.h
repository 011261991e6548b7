// SPDX-License-Identifier: Apache-2.0

// Server is one ps_server. It builds every part from a ServerConfig, opens the port, and stops all
// parts in order. It has no globals except gRPC's, so tests run several servers in one process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/logging/log_tail.h"
#include "common/runtime/clock.h"
#include "common/storage/file_system.h"
#include "common/storage/folder_lock.h"
#include "server/checkpoint/patient_file_system.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/port_file.h"
#include "server/server_config.h"

namespace grpc {
class Server;
}  // namespace grpc

namespace lodestar {
class ThreadPool;
}  // namespace lodestar

namespace lodestar::process {
class TraceRecorder;
}  // namespace lodestar::process

namespace lodestar::firewall {
class ConnectionAcceptor;
struct ConnectionCounts;
enum class ConnectionState : uint8_t;
}  // namespace lodestar::firewall

namespace lodestar::host {
class FolderFence;
class ShardHost;
class ShardLog;
class ShardReports;
}  // namespace lodestar::host

namespace lodestar::limits {
class RefusalCounts;
}  // namespace lodestar::limits

namespace lodestar::replica {
class Replication;
}  // namespace lodestar::replica

namespace lodestar::rpc {
class CallRefusal;
class ParameterRpc;
class ShardAgent;
}  // namespace lodestar::rpc

namespace lodestar::site {
class Site;
class Uplink;
}  // namespace lodestar::site

namespace lodestar::status {
struct ShardReading;
}  // namespace lodestar::status

namespace lodestar::server {

class CoordinatorRole;
class ServerSecurity;

class Server {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    int num_threads =
        0;  // for sums, updates and checksums; 0 means one per usable core, at most 16
    // Called now and then while Create() takes long. If it returns true, Create() returns
    // Cancelled.
    std::function<bool()> is_interrupted = [] { return false; };
    // The leader lease of this process, if it has one.
    storage::LeaderFence leader = {};
    // Confirms that this process still holds the leader lease. Called after every durable write,
    // before any other program is told of it. It is called from any thread, and must not block.
    std::function<absl::Status()> confirm_leader = [] { return absl::OkStatus(); };
    // Creates the uplink that joins a site (ServerConfig::upstream) to the servers upstream.
    // `config` has the site's job. Called once, when all other parts are running.
    std::function<absl::StatusOr<std::unique_ptr<site::Uplink>>(site::Site*)> make_uplink = nullptr;
    // Called about once a second while the port is open, unless a part of the server hangs.
    // `is_serving` says whether the server serves.
    std::function<void(bool is_serving)> on_alive = [](bool) {};
    // Last lines of this process's log, for `psctl logs`. Null means that they are not kept.
    const logging::LogTail* log = nullptr;
    // If it is set, the server must go on from its journal. Create() fails before it changes
    // anything if there is no usable journal, or if this function refuses the state in the journal.
    // Called once.
    std::function<absl::Status(const host::ShardHost& recovered)> check_recovered = nullptr;
  };
  enum class StopKind { kNone, kGraceful, kImmediate };

  // Builds all parts, opens the port and begins to serve. If --journal_dir has the journals of
  // another number of servers, the server of shard 0 first saves them as a checkpoint: see
  // SaveFormerDivision().
  //
  // Errors:
  // - InvalidArgument: the config is wrong.
  // - Unavailable: the port is taken, or the address is not this machine's.
  // - AlreadyExists: another server uses the checkpoint folder.
  // - ResourceExhausted: there is too little disk.
  // - FailedPrecondition: the journal belongs to another job.
  // - Those of files, of PortFile and of CheckTraceOutput().
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerConfig& config,
                                                        const Deps& deps);
  ~Server();  // stops at once if Stop() was not called

  int port() const { return port_; }
  // Returns the address at which workers reach this server.
  const std::string& address() const { return address_; }

  // Blocks until the job is over (OK) or has failed (the reason), or RequestStop() was called
  // (Cancelled).
  absl::Status Wait() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes Wait() return. kImmediate also cuts short a Stop() that is under way. Thread-safe.
  void RequestStop(StopKind kind) ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks for a checkpoint, as `psctl checkpoint` does, and logs the result. Returns at once. A
  // server of another shard than 0 only logs that the coordinator decides about checkpoints.
  // Thread-safe.
  void SaveAndGoOn();
  // Returns true if the job has been completed. Then a stop of the server loses nothing.
  bool is_job_done();
  // Discards this server's certificate, so that the next start enrols anew. Must be called if
  // Wait() has returned Unauthenticated.
  void ThrowAwayCertificate(absl::string_view why);
  // Returns a message for operators about how the job ended. May be called once Wait() has returned
  // OK.
  std::string ending();

  // Blocks until all servers serve the state in their journals, and then until a checkpoint has
  // that state. Called instead of Wait(), on the server of shard 0, before Stop(kImmediate). It
  // does not wait for workers: a contribution that a worker has not pushed completely is lost.
  //
  // Errors:
  // - FailedPrecondition: the coordinator's journal is older than the shards or the checkpoints.
  // - DeadlineExceeded: a server does not attach.
  // - Cancelled: interrupted.
  // - Those of the last checkpoint.
  absl::StatusOr<checkpoints::PublishedCheckpoint> SaveWithoutWorkers();

  // Stops all parts. kGraceful refuses new workers, saves everything that was done, then answers
  // held calls with Unavailable and closes the port. kImmediate does the same without saving.
  // Blocks. Must not be called from a gRPC thread. Repeats are harmless.
  void Stop(StopKind kind);
  // Returns an error in these cases:
  // - The last checkpoint could not be written to --checkpoint_dir, and there is no journal to go
  //   on from. LossOf() says which failures lose nothing.
  // - The last checkpoint is in --fallback_dir. The error's text has its path.
  // - --on_checkpoint has not succeeded with the last checkpoint.
  // May be called after Stop().
  const absl::Status& loss() const { return loss_; }

 private:
  Server(const ServerConfig& config, const Deps& deps);
  absl::Status Start();
  absl::Status Build();
  std::string LogFolder() const;
  // Blocks until this server may use its journal. If the journals in the folder belong to another
  // number of servers, the coordinator may have to read them first. Then this method waits until
  // the coordinator serves. On the server of shard 0 it returns at once. Errors: Cancelled
  // (interrupted).
  absl::Status AwaitNewDivision();
  // Blocks until this server can see the lock file in the coordinator's checkpoint folder, if its
  // own journal is empty. Without the lock file, the folder is probably not mounted yet. If the
  // server started then, the cluster would lose the rounds since the newest checkpoint. Errors:
  // Cancelled (interrupted).
  absl::Status AwaitCheckpointFolder();
  // Checks that the folder of the journal may be written, and claims it.
  absl::Status ClaimLogFolder();
  // Prepares the replication of the files that the replica copies, if there is a replica.
  absl::Status PrepareReplication();
  // Blocks until the replica has the same files as this server. Errors: Cancelled (interrupted);
  // the error with which the replica refuses this server.
  absl::Status AwaitReplica();
  void OnReplicaChange(const absl::Status& state);
  // Returns the replica's name, for messages. Empty means that there is none.
  std::string ReplicaText() const;
  // Returns the error for a process that calls this server as if it were a replica.
  absl::Status NoReplica() const;
  // Returns the error for an operator who asks for tokens or identities on a server without them.
  absl::Status NoAuthority() const;
  // Checks that no other process has taken over the folder of this server's journal. Returns OK if
  // there is no journal.
  absl::Status ConfirmFolder() const;
  // Checks that this server still holds its folder and the leader lease, and that the replica has
  // everything. Only then may it acknowledge what it has written.
  absl::Status ConfirmInCharge() const;
  // Opens the journal of this server's shard, as the earlier process has left it.
  absl::Status OpenLog();
  // Called from a thread of the journal: with an error when the journal can no longer be written to
  // the disk, and with OK when it can be written again.
  void OnLogTrouble(const absl::Status& status);
  host::ShardReports& reports();
  // Takes over the state in the journal.
  absl::Status Recover();
  void StartTrace();
  // Opens the port. Afterwards the server answers enrolments, even while it waits for a replica
  // that must enrol. All other calls get the error that the server is starting.
  absl::Status OpenPort();
  absl::Status Serve();
  absl::Status BeginService();
  absl::Status StartUplink();
  void WatchUplink();
  void Watch();
  void SetHealth(bool is_serving);
  // Raises an alarm if connections were refused because there are too many.
  void WatchConnections();
  firewall::ConnectionCounts ReadConnections() const;
  // Returns the state of the connection whose grpc::ServerContext::peer() is `peer`.
  firewall::ConnectionState StateOf(absl::string_view peer) const;
  status::ShardReading ReadShard() const;
  void Finish(const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsToStopAtOnce() ABSL_LOCKS_EXCLUDED(mutex_);
  void SaveBeforeStop() ABSL_LOCKS_EXCLUDED(mutex_);

  const ServerConfig config_;
  const Deps deps_;
  int port_ = 0;
  std::string address_;

  absl::Mutex mutex_;
  std::optional<absl::Status> outcome_ ABSL_GUARDED_BY(mutex_);
  StopKind stop_requested_ ABSL_GUARDED_BY(mutex_) = StopKind::kNone;
  bool is_watch_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_draining_ = false;
  std::atomic<bool> has_begun_ = false;  // true: BeginService() has succeeded
  bool is_stopped_ = false;
  absl::Status loss_;

  checkpoint::PatientFileSystem disk_{&storage::FileSystem::Real(),
                                      deps_.clock};  // the disk of checkpoints

  const std::shared_ptr<limits::RefusalCounts> refusals_;

  // The members are declared in the order of their lifetimes: each is destroyed before the members
  // above it.
  std::unique_ptr<storage::FolderLock> log_lock_;  // confirmed after each write of a journal
  bool drops_mark_ = false;  // true: the mark of the folder's former role must be removed
  // Name of the server that this server has replaced. Empty means that there is none.
  std::string promoted_from_;
  std::unique_ptr<replica::Replication> replication_;  // null means that there is no replica
  // True: the replica has come back, and the journals have not been told yet to try again.
  std::atomic<bool> is_replica_back_ = false;
  // Disks that the journals are written to. If there is a replica, their writes are copied to it.
  storage::FileSystem* log_disk_ = &disk_;
  storage::FileSystem* shard_disk_ = &disk_;
  std::unique_ptr<ServerSecurity> security_;
  std::unique_ptr<firewall::ConnectionAcceptor> acceptor_;  // null before OpenPort()
  std::optional<PortFile> port_file_;                       // not set before the port accepts calls
  uint64_t num_refused_ = 0;  // number of refused connections when they were last counted
  std::unique_ptr<process::TraceRecorder> trace_;  // null means that nothing is traced
  std::unique_ptr<CoordinatorRole> role_;          // only the server of shard 0 has one
  std::unique_ptr<rpc::ShardAgent> agent_;         // only the other servers have one
  std::unique_ptr<rpc::CallRefusal>
      refusal_;  // answers calls of services that this process does not have
  // Decides which files the coordinator's commands may name. Null on the server of shard 0.
  std::unique_ptr<host::FolderFence> fence_;
  std::unique_ptr<host::ShardLog> log_;       // null means that there is no journal
  std::unique_ptr<ThreadPool> log_executor_;  // its tasks use the log
  bool is_journal_of_former_division_ = false;
  // Says why this server does not go on from its journal. Empty means that it does.
  std::string journal_refusal_;
  bool has_recovered_ = false;
  // The destructor waits for the executor's last tasks, which still report to the members above.
  std::unique_ptr<ThreadPool> executor_;
  std::unique_ptr<host::ShardHost> host_;
  std::unique_ptr<rpc::ParameterRpc> parameter_rpc_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<site::Uplink> uplink_;  // null means that this is no site
  std::string told_of_uplink_;
  std::thread watch_;
};

}  // namespace lodestar::server
