// One ps_server: builds every part from a ServerConfig, opens the port, and stops it all in order.
// No globals besides gRPC's: tests run several in one process.
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
#include "common/clock.h"
#include "common/file_system.h"
#include "common/folder_lock.h"
#include "common/log_tail.h"
#include "server/checkpoint/patient_file_system.h"
#include "server/coordinator/checkpoint_task.h"
#include "server/server_config.h"

namespace grpc {
class Server;
}  // namespace grpc

namespace lodestar {

class CallRefusal;
class ConnectionAcceptor;
class CoordinatorRole;
class FolderFence;
class ParameterRpc;
class RefusalCounts;
class Replication;
class ServerSecurity;
class ShardAgent;
class ShardHost;
class ShardLog;
class ShardReports;
class Site;
class ThreadPool;
class TraceRecorder;
class Uplink;
struct ConnectionCounts;
enum class ConnectionState : uint8_t;
struct ShardReading;

class Server {
 public:
  struct Deps {
    Clock* clock = &Clock::Real();
    int num_threads =
        0;  // for sums, updates and checksums; 0 means one per usable core, at most 16
    // Asked now and then while Create() takes long, which then is Cancelled.
    std::function<bool()> is_interrupted = [] { return false; };
    // The leader lease of this process, if there is one.
    LeaderFence leader = {};
    // Whether this process still is the one that may write. Asked after everything that is written
    // for good, before anybody is told of it. From any thread; must not block.
    std::function<absl::Status()> confirm_leader = [] { return absl::OkStatus(); };
    // Of a site (ServerConfig::upstream), whose job the config has: makes what joins it to the
    // servers upstream. Once, when everything else is at work.
    std::function<absl::StatusOr<std::unique_ptr<Uplink>>(Site*)> make_uplink = nullptr;
    // About once a second from when the port is open: all parts of the server have answered.
    std::function<void(bool is_serving)> on_alive = [](bool) {};
    // The last lines that this process has logged, for psctl logs; null: nobody keeps them.
    const LogTail* log = nullptr;
    // If it is set, the server only goes on from its journal: Create() fails before it changes
    // anything if it cannot, or if this refuses what the journal has. Called once.
    std::function<absl::Status(const ShardHost& recovered)> check_recovered = nullptr;
  };
  enum class StopKind { kNone, kGraceful, kImmediate };

  // Listens and serves from here on. The server of shard 0 first brings into a checkpoint what the
  // journals of another number of servers have: see SaveFormerDivision(). Errors: InvalidArgument
  // (config), Unavailable (the port is taken or the address is not ours), AlreadyExists (another
  // server has the checkpoint folder), ResourceExhausted (too little disk), FailedPrecondition (the
  // journal is of another job), those of files.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerConfig& config,
                                                        const Deps& deps);
  ~Server();  // stops at once if Stop() was not called

  int port() const { return port_; }
  // Where workers reach this server.
  const std::string& address() const { return address_; }

  // Blocks until the job is over (OK), has failed (why), or RequestStop() was called (Cancelled).
  absl::Status Wait() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes Wait() return. kImmediate also cuts a Stop() short that is under way. Thread-safe.
  void RequestStop(StopKind kind) ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks for a checkpoint, as psctl checkpoint does, and logs how that went. Returns at once.
  // Servers of other shards than 0 only log that the coordinator decides it. Thread-safe.
  void SaveAndGoOn();
  // Whether the job was complete, so that nothing is lost by having stopped.
  bool is_job_done();
  // Once Wait() has returned Unauthenticated: what this server has kept to show who it is is not
  // used again.
  void ThrowAwayCertificate(absl::string_view why);
  // Once Wait() has returned OK: how the job came to its end, for people.
  std::string ending();

  // Blocks until all servers serve what their journals have, and then until all of it is in a
  // checkpoint. The server of shard 0 has it called before Stop(kImmediate), in place of Wait().
  // Workers are not waited for: what they have not handed in of an open round is lost. Errors:
  // FailedPrecondition (the coordinator's journal has gone back); DeadlineExceeded (a server does
  // not attach); Cancelled once interrupted; those of the last checkpoint.
  absl::StatusOr<PublishedCheckpoint> SaveWithoutWorkers();

  // kGraceful: turns away new workers, sees to it that everything that was done is saved, then
  // answers held calls with Unavailable and closes the port. kImmediate: without saving. Blocks.
  // Not from a gRPC thread. Repeats are harmless.
  void Stop(StopKind kind);
  // After Stop(): not OK if something was done that no checkpoint in --checkpoint_dir holds
  // although it should; the text says what, and where it is instead.
  const absl::Status& loss() const { return loss_; }

 private:
  Server(const ServerConfig& config, const Deps& deps);
  absl::Status Start();
  absl::Status Build();
  std::string LogFolder() const;
  // Blocks until the coordinator serves, if this server is above shard 0 and the journals beside
  // its own are of another number of servers: the coordinator may have to read this one first.
  // Errors: Cancelled.
  absl::Status AwaitNewDivision();
  // A server above shard 0 that has no journal yet would cost the cluster the rounds since the
  // newest checkpoint. Blocks until the folder of the checkpoints is the coordinator's, as far as
  // can be seen: one that is not mounted yet looks empty. Errors: Cancelled once interrupted.
  absl::Status AwaitCheckpointFolder();
  // Sees whether it may be written, and claims it.
  absl::Status ClaimLogFolder();
  // What of the disk a replica has a copy of, if there is one.
  absl::Status PrepareReplication();
  // Waits until both have the same. Errors: Cancelled once interrupted; what the replica refuses.
  absl::Status AwaitReplica();
  void OnReplicaChange(const absl::Status& state);
  // For people; empty: there is none.
  std::string ReplicaText() const;
  // What whoever takes this server for a replica is told.
  absl::Status NoReplica() const;
  // What an operator is told who wants tokens or identities of a server without them.
  absl::Status NoAuthority() const;
  // Whether this process still holds the folder of its journal, if it keeps one.
  absl::Status ConfirmFolder() const;
  // Whether what was written is this server's to acknowledge.
  absl::Status ConfirmInCharge() const;
  // The journal of this server's shard, as the process before it has left it.
  absl::Status OpenLog();
  // From a thread of the journal's.
  void OnLogTrouble(const absl::Status& status);
  ShardReports& reports();
  // Takes over what that holds.
  absl::Status Recover();
  void StartTrace();
  // Enrolments are served from here on, also while a replica is waited for that is to enrol; all
  // others are told that the server is starting.
  absl::Status OpenPort();
  absl::Status Serve();
  absl::Status BeginService();
  absl::Status StartUplink();
  void WatchUplink();
  void Watch();
  void SetHealth(bool is_serving);
  // Raises an alarm if connections were refused because there are too many.
  void WatchConnections();
  ConnectionCounts ReadConnections() const;
  // What has become of the connection from this grpc::ServerContext::peer().
  ConnectionState StateOf(absl::string_view peer) const;
  ShardReading ReadShard() const;
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
  std::atomic<bool> has_begun_ = false;  // BeginService()
  bool is_stopped_ = false;
  absl::Status loss_;

  PatientFileSystem disk_{&FileSystem::Real(), deps_.clock};  // of checkpoints

  const std::shared_ptr<RefusalCounts> refusals_;

  // In order of life: each is gone before those above it.
  std::unique_ptr<FolderLock> log_lock_;       // asked after each write of a journal
  bool drops_mark_ = false;                    // of what the folder was before
  std::string promoted_from_;                  // whose place this server has taken; empty: nobody's
  std::unique_ptr<Replication> replication_;   // null: there is no replica
  std::atomic<bool> is_replica_back_ = false;  // since the journals were last tried
  // The disk, each with its copy on the replica if there is one.
  FileSystem* log_disk_ = &disk_;
  FileSystem* shard_disk_ = &disk_;
  std::unique_ptr<ServerSecurity> security_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // null before Listen()
  uint64_t num_refused_ = 0;                      // connections, as last seen
  std::unique_ptr<TraceRecorder> trace_;          // null: no trace
  std::unique_ptr<CoordinatorRole> role_;         // of shard 0
  std::unique_ptr<ShardAgent> agent_;             // of the others
  std::unique_ptr<CallRefusal> refusal_;          // of what others have
  std::unique_ptr<FolderFence> fence_;            // of what commands may name; null: of shard 0
  std::unique_ptr<ShardLog> log_;                 // null: nothing is written down
  std::unique_ptr<ThreadPool> log_executor_;      // its tasks use the log
  bool is_journal_of_former_division_ = false;
  std::string journal_refusal_;  // why this server does not go on from its journal; empty: it does
  bool has_recovered_ = false;
  // Its last tasks, which the destructor waits for, still report to those above.
  std::unique_ptr<ThreadPool> executor_;
  std::unique_ptr<ShardHost> host_;
  std::unique_ptr<ParameterRpc> parameter_rpc_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<Uplink> uplink_;  // null: this is no site
  std::string told_of_uplink_;
  std::thread watch_;
};

}  // namespace lodestar
