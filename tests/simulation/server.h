// SPDX-License-Identifier: Apache-2.0

// SimulatedServer is one server process of a simulated cluster. The coordinator with its strand,
// the shard host and the keeper of checkpoints are the real ones. Their threads are events, and
// their disk is a SimulatedFileSystem. This file does what server/rpc does with gRPC between
// servers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/testing/simulated_clock.h"
#include "common/testing/simulated_file_system.h"
#include "server/checkpoint/patient_file_system.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_memory.h"
#include "server/durability/journal/journal_reader.h"
#include "server/durability/replica/replication.h"
#include "server/host/checkpoint_keeper.h"
#include "server/host/coordinator_journal.h"
#include "server/host/shard_host.h"
#include "server/host/shard_log.h"
#include "server/rpc/command_order.h"
#include "server/rpc/coordinator_strand.h"
#include "server/rpc/last_save_calls.h"
#include "server/site/served_site.h"
#include "tests/simulation/audit.h"
#include "tests/simulation/blocking_code.h"
#include "tests/simulation/bulk_service.h"
#include "tests/simulation/network.h"
#include "tests/simulation/replica.h"
#include "tests/simulation/world.h"

namespace lodestar::simulation {

class SimulatedServer;

// The uplink as a site's server sees it. It stands for Uplink in server/site/site.h, whose calls
// block.
class UplinkOfServer {
 public:
  virtual ~UplinkOfServer() = default;
  // Called when the process has begun. `code` runs all code that blocks. `look` inspects all
  // weights of the server.
  virtual void Start(site::Site* site, BlockingCode* code, std::function<void()> look) = 0;
  // Called when the process has ended. Code that still runs finds the server gone, and no other
  // part of the run sees the effects of that code.
  virtual void End() = 0;
  virtual std::string Standing() = 0;
  // Leaves the servers upstream. Calls `left` once it has left or has given up.
  virtual void Leave(std::function<void()> left) = 0;
};

// Data that all processes of a cluster share. Pointers are not owned.
struct ClusterContext {
  World* world = nullptr;
  Network* network = nullptr;
  Audit* audit = nullptr;
  SimulatedFileSystem* disk = nullptr;  // mounted by all servers
  coordinator::Coordinator::Config coordinator;
  int keep = 3;                           // number of checkpoints that are kept
  bool journals = false;                  // servers write down what they acknowledge
  SimulatedReplica* replica = nullptr;    // copy of the journals; null means none
  std::vector<SimulatedServer*> servers;  // by shard: the server that holds its folders
  // Servers that have held the folders of a shard. Each runs until it notices that another server
  // has replaced it.
  std::vector<SimulatedServer*> replaced;
  // Connections of workers to the coordinator, by RegisterCall::peer. If a machine loses power, its
  // connections stay half open.
  std::set<std::string> open_connections;
  // What is known of the connections between a worker incarnation and the servers. Used if closed
  // connections end an incarnation.
  struct Connections {
    const Process* process = nullptr;
    bool has_process_ended = false;
    bool are_bulk_closed = false;  // closed by the end of the process, or by a proxy
    // Last time when a proxy has closed the connections of only this one of the incarnations that
    // the coordinator knows.
    absl::Time closed_alone_at = absl::InfinitePast();
  };
  std::map<Incarnation, Connections> connections;
  // Times until which a process may be unable to open another connection in time.
  std::map<const Process*, absl::Time> disturbed_until;
  UplinkOfServer* uplink = nullptr;  // null means that this is not a site
  bool is_draining = false;          // true while the leftover tasks of an ended process run
  // Shards whose journals were put back to an older state. Each stays here until it has loaded the
  // state with which all begin anew. The coordinator's journal goes back together with that of
  // shard 0, or alone.
  std::set<int> gone_back;
  // Those of gone_back whose servers have attached since then, so that the coordinator can know of
  // the loss.
  std::set<int> attached_gone_back;
  bool has_coordinator_gone_back = false;
  // The servers' incarnation with which all begin anew after a journal has gone back. 0 means none
  // yet.
  uint64_t begun_anew_as = 0;
  int num_restarts = 0;  // restarts of servers above shard 0

  // Returns the server that listens at an address of a shard. If there is none, returns the server
  // that holds the shard.
  SimulatedServer* ServerAt(int shard, const std::string& address) const;
};

class SimulatedServer final : public host::ShardReports, public host::CheckpointReports {
 public:
  SimulatedServer(ClusterContext* cluster, int shard, std::string name);
  ~SimulatedServer() override;

  Process& process() { return process_; }
  // Returns the server's address, which may differ from that of the process before it.
  const std::string& address() const { return address_; }
  void Start();
  // Ends the process at once. `with_machine` means that the machine loses what it has not synced,
  // and no other process learns of the end.
  void Crash(bool with_machine);
  // Tells the server of shard 0 that the process of this worker incarnation, on the same machine,
  // has ended.
  void OnProcessEnded(const messages::WorkerLife& life);
  // Tells the server to stop in order, like SIGTERM. It serves until all work is saved, for
  // stop_timeout at most.
  void RequestStop();
  // Returns true if the server was told to stop and has not exited yet.
  bool is_stopping() const {
    return process_.is_alive() && !exit_.has_value() &&
           (life_->stop_by < absl::InfiniteFuture() || life_->leaves_upstream);
  }
  // Returns true if the server has ended by itself. exit_status() is OK if the coordinator says
  // that the job is over, and Cancelled if the server was told to stop. Other errors mean that it
  // is refused for good.
  bool has_exited() const { return exit_.has_value(); }
  const absl::Status& exit_status() const { return *exit_; }
  // Returns true if the server was told to exit alone, because it could not load.
  bool could_not_load() const { return could_not_load_; }
  // For shard 0. Set once this coordinator has ended because all rounds were done. The number
  // includes the rounds repeated for those that were lost with all their workers.
  std::optional<int64_t> completed_rounds() const { return completed_rounds_; }

  // The calls below are for shard 0. They run where calls of workers arrive. `reply` may be called
  // later.
  template <typename Answer>
  using Reply = std::function<void(const absl::StatusOr<Answer>&)>;
  void Register(const messages::RegisterCall& call, Reply<messages::Registration> reply);
  void Join(const messages::WorkerLife& life, const std::string& layout_hash,
            const messages::DatasetInfo& data, const Reply<ViewId>& reply);
  void Heartbeat(const messages::HeartbeatCall& call, const std::string& peer,
                 const Reply<messages::HeartbeatAnswer>& reply);
  // Holds the call until the stream ends.
  void StayConnected(const messages::WorkerLife& life, const std::string& peer,
                     const std::shared_ptr<Stream>& stream);
  // Replies with a grant, or with the reason why there is none yet. GrantRequest explains `asks`
  // and `without_samples`, and extends_round for ExtendGrant().
  enum class Asks : uint8_t { kOnceDelivered, kAhead, kLeaving };
  void NextGrant(const messages::WorkerLife& life,
                 const std::optional<messages::RoundReport>& report, Asks asks,
                 bool without_samples, Reply<coordinator::GrantAnswer> reply);
  void ExtendGrant(const messages::WorkerLife& life, Round round,
                   const Reply<messages::Grant>& reply);
  void Leave(const messages::WorkerLife& life, const std::string& reason,
             const std::optional<messages::RoundReport>& report, const Reply<bool>& reply);
  // Returns what the shard waits for, for the test's output.
  std::string ShardWaitsFor() const;
  // Does what an operator's request for a checkpoint does.
  void RequestCheckpoint();
  // Pauses and resumes the job, like an operator. Nothing happens if it already is in that state.
  void Pause();
  void Resume();
  // Ends the job like an operator's psctl stop, however many rounds are left.
  void StopJob();
  // Returns a snapshot at the time of the server's own clock, which leaves out the time when it was
  // frozen. Requires: the coordinator is there, and not frozen.
  coordinator::ClusterSnapshot Snapshot();
  coordinator::Coordinator* coordinator() {
    return life_ == nullptr ? nullptr : life_->coordinator;
  }
  // Loses what only its machine had. Call while the server is down.
  enum class Loss { kAll, kCheckpoints };
  void LoseDisk(Loss loss);
  // Makes the disk answer no call of this process; everything else continues.
  void HangDisk();
  // Makes the disk answer again. If another server has taken over the folders meanwhile, this
  // process notices it a while later, and ends.
  void ResumeDisk();
  // Return the folders of the journals of this server and of the coordinator.
  std::string log_folder() const { return absl::StrCat("/journal/shard-", shard_); }
  static std::string coordinator_folder();
  bool has_hanging_disk() const { return life_ != nullptr && life_->has_hanging_disk; }
  // Returns true if the server waits for its disk, whatever the coordinator says.
  bool awaits_disk() const {
    if (life_ == nullptr) return false;
    return has_hanging_disk() || (life_->journal != nullptr && !life_->journal->trouble().ok()) ||
           (life_->log != nullptr && !life_->log->trouble().ok());
  }

  // Bulk calls. Each has a number of its own.
  void BeginPush(uint64_t call, std::shared_ptr<Stream> stream, ServedPush::Answer answer);
  void TakeBucket(uint64_t call, PushedBucket bucket);
  void EndPush(uint64_t call);
  void Pull(uint64_t call, const std::shared_ptr<Stream>& stream, PullOrder order,
            ServedPull::Deliver deliver, ServedPull::Answer answer);
  // Not set means that the call is not known.
  std::optional<client::ServedCall> Describe(uint64_t call) const;
  // Returns OK if bulk calls would be served.
  absl::Status TryPath() const;

 private:
  // The coordinator's connection to the server of another shard, for commands.
  struct Remote {
    SimulatedServer* server = nullptr;
    uint64_t instance_id = 0;
    std::shared_ptr<Stream> stream;
    uint64_t last_number = 0;  // number of the last message on the stream
  };
  using Report = std::function<void(coordinator::Coordinator&, absl::Time now)>;
  // A contribution that a server has acknowledged, as the server reports it to the coordinator.
  struct Contributed {
    uint64_t server_incarnation = 0;
    messages::WorkerLife life;
    Round round;
    uint64_t journal_end = 0;
  };
  // Data that are gone when the process ends.
  struct Life {
    Life(SimulatedServer* server, Process* process);
    // Runs the leftover tasks until none is left.
    void Drain();

    ProcessExecutor arithmetic;
    ProcessExecutor commands;
    ProcessExecutor writer;
    ProcessExecutor keeper_tasks;
    ProcessExecutor log_tasks;
    ProcessExecutor journal_writer;
    bool has_hanging_disk = false;
    bool lacks_memory = false;  // has an effect when the server loads for the first time
    uint64_t instance_id = 0;
    std::unique_ptr<replica::Replication> replication;  // null means that there is no replica
    // Views of the disk, each with its copy if there is a replica.
    storage::FileSystem* log_disk = nullptr;
    storage::FileSystem* shard_disk = nullptr;
    storage::FileSystem* journal_disk = nullptr;
    storage::FileSystem* keeper_disk = nullptr;
    // These members are for shard 0.
    std::unique_ptr<host::CoordinatorJournal> journal;
    std::unique_ptr<rpc::CoordinatorStrand> strand;
    std::unique_ptr<host::CheckpointKeeper> keeper;
    coordinator::Coordinator* coordinator = nullptr;
    std::map<int, Remote> remotes;
    // These members are for the other shards.
    std::shared_ptr<Stream> attachment;
    absl::Status connection = absl::UnavailableError("not connected to the coordinator yet");
    rpc::CommandOrder order;
    int num_unanswered = 0;  // signs of life on the stream that were not answered
    absl::Duration pause;
    // Reports that are not yet answered. At servers above shard 0 the first one is under way.
    std::deque<Report> reports;
    absl::Duration report_pause;
    // These members are for a site.
    std::unique_ptr<BlockingCode> code;
    std::unique_ptr<site::ServedSite> site;
    std::string told_of_uplink;
    bool leaves_upstream = false;  // the process ends when it has left upstream
    // Time when a server gives up that was told to stop.
    absl::Time stop_by = absl::InfiniteFuture();
    std::optional<rpc::LastSaveCalls> last_save;  // set once the server was told to stop

    std::map<uint64_t, std::weak_ptr<ServedPush>> pushes;
    std::map<uint64_t, std::weak_ptr<ServedPull>> pulls;
    ShardAudit* audit = nullptr;          // audit of the loaded shard
    std::unique_ptr<host::ShardLog> log;  // null means that nothing is written down
    std::unique_ptr<host::ShardHost> host;
  };

  // Returns true if another server has taken over the folders.
  bool is_replaced() const { return cluster_->servers[shard_] != this; }
  // Does what FolderLock::CheckHeld() does.
  absl::Status CheckHeld() const;
  // Checks, if another server has taken over the folders, that the other server knows what this one
  // acknowledges.
  void CheckIsKnown(const messages::WorkerLife& life, Round reported) const;
  // Tells the audit that the coordinator has accepted a report.
  void TellAudit(const messages::WorkerLife& life, const messages::RoundReport& report);
  absl::Status TryFolders();
  // Makes sure that the replica has everything, or takes everything from the replica.
  absl::Status Replicate();
  absl::Status OpenLog();
  // Takes over what the process before has written down. Returns false if there is nothing.
  absl::StatusOr<bool> Recover();
  // Ends the process with an error, and restarts it later.
  void FailToStart(const absl::Status& why);
  absl::Status ReadJournal();
  absl::Status StartCoordinator();
  void CarryOut(coordinator::Effect effect, const shards::CoordinatorRecord& follows);
  // Returns true if no coordinator may give this command while the journal of a server is older
  // than it was.
  bool GoesOnWithOlderJournal(const shards::ShardCommand& command) const;
  void Tick();
  void TickShard();
  // Returns the audit of the loaded shard. Null means that none is loaded.
  ShardAudit* audit() const;
  void InspectShard(bool all);
  void Exit(const absl::Status& status);
  // Calls `then` once the uplink has left, or at once if this is not a site.
  void LeaveUpstream(std::function<void()> then);
  void SaveBeforeStop();
  // Returns true if the server was told to stop, and admits no worker any more.
  bool is_draining() const { return life_->stop_by < absl::InfiniteFuture(); }

  void Attach();
  void OnAttach(SimulatedServer* server, uint64_t instance_id, uint64_t memory_of,
                shards::JournalPlace journal, const std::shared_ptr<Stream>& stream);
  void EndAttachment(const absl::Status& status);
  void OnAttachmentEnded(const absl::Status& status);
  // Sends a command. Without a command, only the next number is sent.
  void Send(Remote& remote, const std::optional<shards::ShardCommand>& command,
            const shards::CoordinatorRecord& follows = {});
  void Obey(const shards::ShardCommand& command, const shards::CoordinatorRecord& follows);
  void SendStats();
  shard::ShardStats ReadStats() const;
  void OnStats(int shard, uint64_t instance_id, uint64_t first_segment,
               const shard::ShardStats& stats);
  // Checks the end of a worker incarnation whose connections were closed: its process must have
  // ended, or must have been unable to connect.
  void CheckMayEnd(const shards::DropCommand& drop) const;
  void NoteLoaded(const shards::ShardLoaded& loaded);
  // Returns true if the job waits for another server if this one cannot load.
  bool MayLackMemory() const;
  machine::HostMemory ReadMemory();
  // Sends the report to the coordinator: at once if the coordinator is in this process, else until
  // it is answered.
  void SendReport(Report report);
  // Sends the contribution until it is answered.
  void SendContributed(const Contributed& contributed, absl::Duration pause);
  // Accepts the contribution. For shard 0.
  void TakeContributed(int shard, const Contributed& contributed);
  void SendFirstReport();
  absl::Status CheckAttached(int shard, uint64_t instance_id, uint64_t first_segment) const;
  // Accepts a report. `answer` is called once, perhaps later.
  void TakeReport(int shard, uint64_t instance_id, uint64_t first_segment, const Report& report,
                  std::function<void(const absl::Status&)> answer);

  // Asks for the last checkpoint before this server stops.
  void CallForLastSave();
  // Ends with `outcome`, or asks again later if it is not set.
  void GoOnWithLastSave(const std::optional<rpc::LastSaveCalls::Outcome>& outcome);
  void OnLastSave(const absl::StatusOr<checkpoints::PublishedCheckpoint>& saved);

  void OnEvent(shards::ShardEvent event) override;
  void OnContributed(uint64_t server_incarnation, const messages::WorkerLife& life,
                     Round round) override;
  void OnNotice(absl::string_view text) override;
  void OnRestoreChosen(const absl::StatusOr<coordinator::RestoreChoice>& choice) override;
  void OnCheckpointPublished(
      const std::string& directory,
      const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) override;
  void OnCheckpointMarked(bool is_complete, const absl::Status& status) override;
  void OnCheckpointGone(const std::string& /*path*/) override {}

  ClusterContext* const cluster_;
  const int shard_;
  // for pauses between reads, which take no time here
  SimulatedClock pauses_{SimulatedClock::OnSleep::kAdvance};
  checkpoint::PatientFileSystem disk_;
  Process process_;
  std::string address_;
  std::unique_ptr<Life> life_;
  // Content of the journal when this process, or its coordinator, began.
  journal::JournalEnd journal_end_;
  std::optional<coordinator::CoordinatorMemory> memory_;
  shards::CoordinatorRecord found_record_;
  std::string journal_damage_;  // See JournalFacts.
  std::optional<absl::Status> exit_;
  bool could_not_load_ = false;
  std::optional<int64_t> completed_rounds_;
};

}  // namespace lodestar::simulation
