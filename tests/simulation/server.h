// SimulatedServer: one server process of a simulated cluster. The coordinator with its strand, the
// shard host and the keeper of checkpoints are the real ones; their threads are events, their disk
// is a SimulatedFileSystem, and what gRPC does between servers is done here as server/rpc does it.
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

// The part of its uplink that a site's server has, as Uplink in server/site/site.h, whose calls
// block.
class UplinkOfServer {
 public:
  virtual ~UplinkOfServer() = default;
  // The process has begun. `code` runs all code that blocks. `look` looks at all weights of the
  // server.
  virtual void Start(site::Site* site, BlockingCode* code, std::function<void()> look) = 0;
  // The process has ended. Code that still runs meets a server that is gone, and no part of the run
  // sees what that code does.
  virtual void End() = 0;
  virtual std::string Standing() = 0;
  // Calls back once it has left the servers upstream, or has given them up.
  virtual void Leave(std::function<void()> left) = 0;
};

// What all processes of a cluster share. Not owned.
struct ClusterContext {
  World* world = nullptr;
  Network* network = nullptr;
  Audit* audit = nullptr;
  SimulatedFileSystem* disk = nullptr;  // that all servers mount
  Coordinator::Config coordinator;
  int keep = 3;                           // checkpoints
  bool journals = false;                  // servers write down what they acknowledge,
  SimulatedReplica* replica = nullptr;    // and there as well; null if nowhere
  std::vector<SimulatedServer*> servers;  // by shard: that hold its folders
  // Servers that have held the folders of a shard. Each runs until it notices that it has been
  // replaced.
  std::vector<SimulatedServer*> replaced;
  // The connections of workers to the coordinator, by RegisterCall::peer. Those of machines that
  // lose power stay half open.
  std::set<std::string> open_connections;
  // What is known of the connections between a life of a worker and the servers, if connections
  // that were closed count.
  struct Connections {
    const Process* process = nullptr;
    bool has_process_ended = false;
    bool are_bulk_closed = false;  // by the end of the process, or a proxy
    // A proxy has closed those of this life and of no other that the coordinator knows of, at last.
    absl::Time closed_alone_at = absl::InfinitePast();
  };
  std::map<Incarnation, Connections> connections;
  // Until then a process cannot be sure to open another connection in time.
  std::map<const Process*, absl::Time> disturbed_until;
  UplinkOfServer* uplink = nullptr;  // null if this is no site
  bool is_draining = false;          // what a process that has ended left undone
  // Shards whose journals were put back to an older state, each until it has loaded what all begin
  // anew with. The coordinator's went with that of shard 0, or alone.
  std::set<int> gone_back;
  // Those of them whose servers have attached since, so that the coordinator can know.
  std::set<int> attached_gone_back;
  bool has_coordinator_gone_back = false;
  // The servers' life with which all begin anew after a journal has gone back. 0 means none yet.
  uint64_t begun_anew_as = 0;
  int num_restarts = 0;  // of servers above shard 0

  // Returns the server that listens at an address of a shard. If none does, returns the one that
  // holds the shard.
  SimulatedServer* ServerAt(int shard, const std::string& address) const;
};

class SimulatedServer final : public host::ShardReports, public host::CheckpointReports {
 public:
  SimulatedServer(ClusterContext* cluster, int shard, std::string name);
  ~SimulatedServer() override;

  Process& process() { return process_; }
  // Where it is reached: not always where the process before it was.
  const std::string& address() const { return address_; }
  void Start();
  // `with_machine` means that what the machine has not synced is lost, and no other process is
  // told.
  void Crash(bool with_machine);
  // Tells the server of shard 0 that the process of this life, on its machine, has ended.
  void OnProcessEnded(const WorkerLife& life);
  // The server is told to stop in order, as by SIGTERM. It serves until all that was done is saved,
  // for stop_timeout at most.
  void RequestStop();
  // Returns true if the server has been told to stop, and has not exited yet.
  bool is_stopping() const {
    return process_.is_alive() && !exit_.has_value() &&
           (life_->stop_by < absl::InfiniteFuture() || life_->leaves_upstream);
  }
  // It has ended by itself: OK, the coordinator says that the job is over; Cancelled, told to stop;
  // else it is refused for good.
  bool has_exited() const { return exit_.has_value(); }
  const absl::Status& exit_status() const { return *exit_; }
  // It was told to exit alone, because it could not load.
  bool could_not_load() const { return could_not_load_; }
  // For shard 0. Set once this coordinator has ended because all rounds were done: those asked for,
  // and as many more as were lost with all their workers.
  std::optional<int64_t> completed_rounds() const { return completed_rounds_; }

  // The calls below are for shard 0. They are called where calls of workers arrive. `reply` may be
  // called later.
  template <typename Answer>
  using Reply = std::function<void(const absl::StatusOr<Answer>&)>;
  void Register(const RegisterCall& call, Reply<Registration> reply);
  void Join(const WorkerLife& life, const std::string& layout_hash, const DatasetInfo& data,
            const Reply<ViewId>& reply);
  void Heartbeat(const HeartbeatCall& call, const std::string& peer,
                 const Reply<HeartbeatAnswer>& reply);
  // Held until the stream ends.
  void StayConnected(const WorkerLife& life, const std::string& peer,
                     const std::shared_ptr<Stream>& stream);
  // With a grant, or the reason why there is none yet. `asks`: see GrantRequest.
  enum class Asks : uint8_t { kOnceDelivered, kAhead, kLeaving };
  void NextGrant(const WorkerLife& life, const std::optional<RoundReport>& report, Asks asks,
                 Reply<GrantAnswer> reply);
  void Leave(const WorkerLife& life, const std::string& reason,
             const std::optional<RoundReport>& report, const Reply<bool>& reply);
  // What its shard waits for, for people.
  std::string ShardWaitsFor() const;
  // An operator asks for one.
  void RequestCheckpoint();
  // An operator wants no more rounds, and some again: nothing if that is so.
  void Pause();
  void Resume();
  // An operator ends the job, whatever is left of it (psctl stop).
  void StopJob();
  // By its own clock, which leaves out what it was frozen for. Requires: it is there, and not
  // frozen.
  ClusterSnapshot Snapshot();
  Coordinator* coordinator() { return life_ == nullptr ? nullptr : life_->coordinator; }
  // While it is down: what only its machine had is gone.
  enum class Loss { kAll, kCheckpoints };
  void LoseDisk(Loss loss);
  // The disk answers nothing of this process; all else goes on.
  void HangDisk();
  // It does again. A process whose folders were taken over meanwhile notices that a while later,
  // and ends.
  void ResumeDisk();
  // Folders with what this server, and the coordinator if it is that, has written down.
  std::string log_folder() const { return absl::StrCat("/journal/shard-", shard_); }
  static std::string coordinator_folder();
  bool has_hanging_disk() const { return life_ != nullptr && life_->has_hanging_disk; }
  // It waits for the disk, whatever the coordinator says.
  bool awaits_disk() const {
    if (life_ == nullptr) return false;
    return has_hanging_disk() || (life_->journal != nullptr && !life_->journal->trouble().ok()) ||
           (life_->log != nullptr && !life_->log->trouble().ok());
  }

  // Bulk calls, known by numbers that differ.
  void BeginPush(uint64_t call, std::shared_ptr<Stream> stream, ServedPush::Answer answer);
  void TakeBucket(uint64_t call, PushedBucket bucket);
  void EndPush(uint64_t call);
  void Pull(uint64_t call, const std::shared_ptr<Stream>& stream, PullOrder order,
            ServedPull::Deliver deliver, ServedPull::Answer answer);
  // Not set means that the call is not known.
  std::optional<client::ServedCall> Describe(uint64_t call) const;
  // OK if bulk calls would be served.
  absl::Status TryPath() const;

 private:
  // From where the coordinator's commands go.
  struct Remote {
    SimulatedServer* server = nullptr;
    uint64_t instance_id = 0;
    std::shared_ptr<Stream> stream;
    uint64_t last_number = 0;  // of what was sent on it
  };
  using Report = std::function<void(Coordinator&, absl::Time now)>;
  // What a server tells of a contribution that it has acknowledged.
  struct Contributed {
    uint64_t server_incarnation = 0;
    WorkerLife life;
    Round round;
    uint64_t journal_end = 0;
  };
  // What is gone when the process ends.
  struct Life {
    Life(SimulatedServer* server, Process* process);
    // Until nothing is left to do.
    void Drain();

    ProcessExecutor arithmetic;
    ProcessExecutor commands;
    ProcessExecutor writer;
    ProcessExecutor keeper_tasks;
    ProcessExecutor log_tasks;
    ProcessExecutor journal_writer;
    bool has_hanging_disk = false;
    bool lacks_memory = false;  // when it loads for the first time
    uint64_t instance_id = 0;
    std::unique_ptr<replica::Replication> replication;  // null if there is no replica
    // The disk, each with its copy if there is a replica.
    FileSystem* log_disk = nullptr;
    FileSystem* shard_disk = nullptr;
    FileSystem* journal_disk = nullptr;
    FileSystem* keeper_disk = nullptr;
    // These members are for shard 0.
    std::unique_ptr<host::CoordinatorJournal> journal;
    std::unique_ptr<rpc::CoordinatorStrand> strand;
    std::unique_ptr<host::CheckpointKeeper> keeper;
    Coordinator* coordinator = nullptr;
    std::map<int, Remote> remotes;
    // These members are for the other shards.
    std::shared_ptr<Stream> attachment;
    absl::Status connection = absl::UnavailableError("not connected to the coordinator yet");
    rpc::CommandOrder order;
    int num_unanswered = 0;  // signs of life, on the stream
    absl::Duration pause;
    std::deque<Report> reports;  // not answered; at servers above shard 0 the first is under way
    absl::Duration report_pause;
    // These members are for a site.
    std::unique_ptr<BlockingCode> code;
    std::unique_ptr<site::ServedSite> site;
    std::string told_of_uplink;
    bool leaves_upstream = false;  // the process ends when it has
    // When it gives up, once it was told to stop.
    absl::Time stop_by = absl::InfiniteFuture();
    std::optional<rpc::LastSaveCalls> last_save;  // once it was told to stop

    std::map<uint64_t, std::weak_ptr<ServedPush>> pushes;
    std::map<uint64_t, std::weak_ptr<ServedPull>> pulls;
    ShardAudit* audit = nullptr;          // of the shard that is loaded
    std::unique_ptr<host::ShardLog> log;  // null if nothing is written down
    std::unique_ptr<host::ShardHost> host;
  };

  // Whether another server has taken the folders over.
  bool is_replaced() const { return cluster_->servers[shard_] != this; }
  // As FolderLock::CheckHeld().
  absl::Status CheckHeld() const;
  // Where another server has taken the folders over, it has to know what this one acknowledges.
  void CheckIsKnown(const WorkerLife& life, Round reported) const;
  // The coordinator has taken a report.
  void TellAudit(const WorkerLife& life, const RoundReport& report);
  absl::Status TryFolders();
  // Sees to it that the replica has all, or takes all from there.
  absl::Status Replicate();
  absl::Status OpenLog();
  // Takes over what the process before it has written down. Returns false if there is nothing.
  absl::StatusOr<bool> Recover();
  // The process ends with an error, and is started again.
  void FailToStart(const absl::Status& why);
  absl::Status ReadJournal();
  absl::Status StartCoordinator();
  void CarryOut(Effect effect, const CoordinatorRecord& follows);
  // Whether no coordinator gives this command while the journal of a server is older than it was.
  bool GoesOnWithOlderJournal(const ShardCommand& command) const;
  void Tick();
  void TickShard();
  // Returns the audit of the shard that is loaded. Null means that none is.
  ShardAudit* audit() const;
  void InspectShard(bool all);
  void Exit(const absl::Status& status);
  // Calls `then` once the uplink has left, or at once if this is no site.
  void LeaveUpstream(std::function<void()> then);
  void SaveBeforeStop();
  // It was told to stop, and takes no worker in.
  bool is_draining() const { return life_->stop_by < absl::InfiniteFuture(); }

  void Attach();
  void OnAttach(SimulatedServer* server, uint64_t instance_id, uint64_t memory_of,
                JournalPlace journal, const std::shared_ptr<Stream>& stream);
  void EndAttachment(const absl::Status& status);
  void OnAttachmentEnded(const absl::Status& status);
  // Without a command, the next number alone is sent.
  void Send(Remote& remote, const std::optional<ShardCommand>& command,
            const CoordinatorRecord& follows = {});
  void Obey(const ShardCommand& command, const CoordinatorRecord& follows);
  void SendStats();
  shard::ShardStats ReadStats() const;
  void OnStats(int shard, uint64_t instance_id, uint64_t first_segment,
               const shard::ShardStats& stats);
  // Checks that a life that is ended because its connections were closed has no process, or could
  // not dial.
  void CheckMayEnd(const DropCommand& drop) const;
  void NoteLoaded(const ShardLoaded& loaded);
  // Whether the job waits for another server if this one cannot load.
  bool MayLackMemory() const;
  HostMemory ReadMemory();
  // Sends the report to the coordinator: at once if it is here, else until it is answered.
  void SendReport(Report report);
  void SendContributed(const Contributed& contributed, absl::Duration pause);  // until answered
  void TakeContributed(int shard, const Contributed& contributed);             // shard 0
  void SendFirstReport();
  absl::Status CheckAttached(int shard, uint64_t instance_id, uint64_t first_segment) const;
  // `answer` is called once, perhaps later.
  void TakeReport(int shard, uint64_t instance_id, uint64_t first_segment, const Report& report,
                  std::function<void(const absl::Status&)> answer);

  // The last checkpoint before this server stops.
  void CallForLastSave();
  // Asks again if that was not the outcome.
  void GoOnWithLastSave(const std::optional<rpc::LastSaveCalls::Outcome>& outcome);
  void OnLastSave(const absl::StatusOr<PublishedCheckpoint>& saved);

  void OnEvent(ShardEvent event) override;
  void OnContributed(uint64_t server_incarnation, const WorkerLife& life, Round round) override;
  void OnNotice(absl::string_view text) override;
  void OnRestoreChosen(const absl::StatusOr<RestoreChoice>& choice) override;
  void OnCheckpointPublished(const std::string& directory,
                             const absl::StatusOr<PublishedCheckpoint>& published) override;
  void OnCheckpointMarked(bool is_complete, const absl::Status& status) override;
  void OnCheckpointGone(const std::string& /*path*/) override {}

  ClusterContext* const cluster_;
  const int shard_;
  SimulatedClock pauses_{SimulatedClock::OnSleep::kAdvance};  // of readings: they take no time
  checkpoint::PatientFileSystem disk_;
  Process process_;
  std::string address_;
  std::unique_ptr<Life> life_;
  // What the journal had when this process, or its coordinator, began.
  journal::JournalEnd journal_end_;
  std::optional<CoordinatorMemory> memory_;
  CoordinatorRecord found_record_;
  std::string journal_damage_;  // See JournalFacts.
  std::optional<absl::Status> exit_;
  bool could_not_load_ = false;
  std::optional<int64_t> completed_rounds_;
};

}  // namespace lodestar::simulation
