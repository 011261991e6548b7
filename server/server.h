// One ps_server. It builds every part from a ServerConfig, opens the port, and stops all parts in
// order. It has no globals besides gRPC's: tests run several servers in one process.
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
class TraceRecorder;
}  // namespace lodestar

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
    // It is called now and then while Create() takes long. If it returns true, Create() returns
    // Cancelled.
    std::function<bool()> is_interrupted = [] { return false; };
    // The leader lease of this process, if there is one.
    LeaderFence leader = {};
    // Confirms that this process still is the one that may write. It is called after everything
    // that is written for good, before any other program is told of it. It is called from any
    // thread, and must not block.
    std::function<absl::Status()> confirm_leader = [] { return absl::OkStatus(); };
    // Makes the uplink that joins a site (ServerConfig::upstream), whose job the config has, to the
    // servers upstream. It is called once, when all other parts are at work.
    std::function<absl::StatusOr<std::unique_ptr<site::Uplink>>(site::Site*)> make_uplink = nullptr;
    // Is called about once a second from when the port is open, once all parts of the server have
    // answered.
    std::function<void(bool is_serving)> on_alive = [](bool) {};
    // The last lines that this process has logged, for psctl logs. Null means that they are not
    // kept.
    const LogTail* log = nullptr;
    // If it is set, the server only goes on from its journal: Create() fails before it changes
    // anything if it cannot, or if this refuses what the journal has. Called once.
    std::function<absl::Status(const host::ShardHost& recovered)> check_recovered = nullptr;
  };
  enum class StopKind { kNone, kGraceful, kImmediate };

  // Listens and serves from here on. The server of shard 0 first brings into a checkpoint what the
  // journals of another number of servers have: see SaveFormerDivision(). Errors: InvalidArgument
  // (config), Unavailable (the port is taken or the address is not this machine's), AlreadyExists
  // (another server has the checkpoint folder), ResourceExhausted (too little disk),
  // FailedPrecondition (the journal is of another job), those of files, of PortFile and of
  // CheckTraceOutput().
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerConfig& config,
                                                        const Deps& deps);
  ~Server();  // It stops at once if Stop() was not called.

  int port() const { return port_; }
  // The address at which workers reach this server.
  const std::string& address() const { return address_; }

  // Blocks until the job is over (OK), has failed (why), or RequestStop() was called (Cancelled).
  absl::Status Wait() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes Wait() return. kImmediate also cuts a Stop() short that is under way. Thread-safe.
  void RequestStop(StopKind kind) ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks for a checkpoint, as psctl checkpoint does, and logs how that went. Returns at once.
  // Servers of other shards than 0 only log that the coordinator decides it. Thread-safe.
  void SaveAndGoOn();
  // Whether the job was complete. If it was, nothing is lost by having stopped.
  bool is_job_done();
  // Must be called once Wait() has returned Unauthenticated. The certificate that this server has
  // kept is not used again.
  void ThrowAwayCertificate(absl::string_view why);
  // Must be called once Wait() has returned OK. Returns how the job came to its end, for people.
  std::string ending();

  // Blocks until all servers serve what their journals have, and then until all of it is in a
  // checkpoint. It is called on the server of shard 0 before Stop(kImmediate), in place of Wait().
  // It does not wait for workers: what they have not handed in of an open round is lost. Errors:
  // FailedPrecondition (the coordinator's journal has gone back); DeadlineExceeded (a server does
  // not attach); Cancelled once interrupted; those of the last checkpoint.
  absl::StatusOr<PublishedCheckpoint> SaveWithoutWorkers();

  // Stops all parts. kGraceful turns away new workers, sees to it that everything that was done is
  // saved, then answers held calls with Unavailable and closes the port. kImmediate does so without
  // saving. Blocks. Must not be called from a gRPC thread. Repeats are harmless.
  void Stop(StopKind kind);
  // May be called after Stop(). It is not OK if something was done that no checkpoint in
  // --checkpoint_dir holds although it should: the text says what, and where it is instead. Nor is
  // it OK if --on_checkpoint has not succeeded with the last checkpoint.
  const absl::Status& loss() const { return loss_; }

 private:
  Server(const ServerConfig& config, const Deps& deps);
  absl::Status Start();
  absl::Status Build();
  std::string LogFolder() const;
  // If this server is above shard 0, and the journals beside its own are of another number of
  // servers, blocks until the coordinator serves: the coordinator may have to read this one first.
  // Errors: Cancelled.
  absl::Status AwaitNewDivision();
  // Blocks until the folder of the checkpoints is the coordinator's, as far as can be seen. A
  // folder that is not mounted yet looks empty, and a server above shard 0 that has no journal yet
  // would cost the cluster the rounds since the newest checkpoint. Errors: Cancelled once
  // interrupted.
  absl::Status AwaitCheckpointFolder();
  // Checks that the folder of the journal may be written, and claims it.
  absl::Status ClaimLogFolder();
  // Prepares the replication of what the replica has a copy of, if there is a replica.
  absl::Status PrepareReplication();
  // Waits until both sides have the same. Errors: Cancelled once interrupted; those by which the
  // replica refuses.
  absl::Status AwaitReplica();
  void OnReplicaChange(const absl::Status& state);
  // Names the replica, for people. Empty means that there is none.
  std::string ReplicaText() const;
  // Returns what a caller is told that takes this server for a replica.
  absl::Status NoReplica() const;
  // Returns what an operator is told who wants tokens or identities of a server without them.
  absl::Status NoAuthority() const;
  // Whether this process still holds the folder of its journal, if it keeps one.
  absl::Status ConfirmFolder() const;
  // Whether this server may acknowledge what was written.
  absl::Status ConfirmInCharge() const;
  // Opens the journal of this server's shard, as the process before it has left it.
  absl::Status OpenLog();
  // Is called from a thread of the journal's.
  void OnLogTrouble(const absl::Status& status);
  host::ShardReports& reports();
  // Takes over what the journal holds.
  absl::Status Recover();
  void StartTrace();
  // Opens the port. From here on enrolments are served, also while the server waits for a replica
  // that is to enrol. All other calls are told that the server is starting.
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
  // Returns what has become of the connection that grpc::ServerContext::peer() names so.
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
  std::atomic<bool> has_begun_ = false;  // Whether BeginService() has succeeded.
  bool is_stopped_ = false;
  absl::Status loss_;

  checkpoint::PatientFileSystem disk_{&FileSystem::Real(),
                                      deps_.clock};  // The disk of checkpoints.

  const std::shared_ptr<limits::RefusalCounts> refusals_;

  // The members stand in the order of their lives: each is destroyed before those above it.
  std::unique_ptr<FolderLock> log_lock_;  // It is asked after each write of a journal.
  bool drops_mark_ = false;  // Whether to remove the mark of what the folder was before.
  // The server whose place this one has taken. Empty means that there is none.
  std::string promoted_from_;
  std::unique_ptr<replica::Replication> replication_;  // Null means that there is no replica.
  // Whether the replica has come back since the journals were last tried.
  std::atomic<bool> is_replica_back_ = false;
  // Both write to the disk. If there is a replica, what they write is copied to it.
  FileSystem* log_disk_ = &disk_;
  FileSystem* shard_disk_ = &disk_;
  std::unique_ptr<ServerSecurity> security_;
  std::unique_ptr<firewall::ConnectionAcceptor> acceptor_;  // Null before Listen().
  std::optional<PortFile> port_file_;                       // None before the port can be called.
  uint64_t num_refused_ = 0;  // The connections that were refused when they were last counted.
  std::unique_ptr<TraceRecorder> trace_;    // Null means that nothing is traced.
  std::unique_ptr<CoordinatorRole> role_;   // Only the server of shard 0 has one.
  std::unique_ptr<rpc::ShardAgent> agent_;  // Only the other servers have one.
  std::unique_ptr<rpc::CallRefusal>
      refusal_;  // Refuses calls of services that other processes have.
  // Says what commands may name. Null means that this is the server of shard 0.
  std::unique_ptr<host::FolderFence> fence_;
  std::unique_ptr<host::ShardLog> log_;       // Null means that nothing is written down.
  std::unique_ptr<ThreadPool> log_executor_;  // Its tasks use the log.
  bool is_journal_of_former_division_ = false;
  // Says why this server does not go on from its journal. Empty means that it does.
  std::string journal_refusal_;
  bool has_recovered_ = false;
  // The destructor waits for its last tasks, which still report to the members above.
  std::unique_ptr<ThreadPool> executor_;
  std::unique_ptr<host::ShardHost> host_;
  std::unique_ptr<rpc::ParameterRpc> parameter_rpc_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<site::Uplink> uplink_;  // Null means that this is no site.
  std::string told_of_uplink_;
  std::thread watch_;
};

}  // namespace lodestar::server
