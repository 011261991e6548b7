#include "tests/simulation/simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint_directory.h"
#include "common/folder_lock.h"
#include "common/remedy.h"
#include "common/status_macros.h"
#include "common/testing/simulated_file_system.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "tests/simulation/audit.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/server.h"
#include "tests/simulation/worker.h"

namespace lodestar::simulation {
namespace {

// From the last fault on: until a round is committed, the next one is, and the job is over.
constexpr absl::Duration kLongestPause = absl::Seconds(60);
constexpr absl::Duration kLongestStorm = absl::Seconds(40);
constexpr absl::Duration kLongestLull = absl::Seconds(30);
// And two leases: until all have found each other again after the last fault.
constexpr absl::Duration kSettlingTime = absl::Seconds(5);
constexpr int kMaxStorms = 20;
// Beyond its own patience, until a server that was told to stop has exited.
constexpr absl::Duration kStopSlack = absl::Seconds(5);
// And two leases: from the last fault on, until a job that an operator has stopped is over.
constexpr absl::Duration kLongestEnding = absl::Seconds(15);
// And a lease: beyond what a worker that hangs may take.
constexpr absl::Duration kHoldSlack = absl::Seconds(5);
constexpr absl::Duration kSupervision = absl::Milliseconds(200);

constexpr char kUnreadable[] = "the disk cannot be read";

// Servers that cannot read what they begin with end the job, and say why.
bool IsOfDisk(const absl::Status& status) {
  return absl::StrContains(status.message(), kUnreadable);
}

class Run {
 public:
  explicit Run(const SimulationOptions& options);
  ~Run() { world_.Finish(); }
  SimulationResult Go();

 private:
  enum class Fault : uint8_t {
    kKillWorker,
    kFreezeWorker,
    kStopWorker,
    kHangWorker,
    kKillServer,
    kFreezeServer,
    kStopServers,
    kStopJob,
    kCut,
    kSilence,
    kSlowDown,
    kDamage,
    kFillDisk,
    kFailDisk,
    kFailFolder,
    kCrashOnDisk,
    kFailReads,
    kDamageCheckpoint,
    kCheckpoint,
    kTakeOver,
    kLast,
  };
  // Where there is a replica.
  enum class ReplicaFault : uint8_t {
    kCrash,
    kCut,
    kCutOnce,
    kCrashOnDisk,
    kFillDisk,
    kLoseDisk,
    kLoseServersDisk,
    kLast,
  };

  void BeginStorm();
  void EndStorm();
  void PlanFault(int storm);
  void Strike(Fault fault);
  void PlanReplicaFault(int storm);
  void Strike(ReplicaFault fault);
  void BeginCalm();
  // Whatever is broken.
  void Mend();
  void Supervise();
  void StartAgain(SimulatedWorker& worker, absl::Duration pause);
  void StartAgain(SimulatedServer& server, absl::Duration pause);
  void KillServer(SimulatedServer& server, bool with_machine);
  // A server's disk hangs for so long that another one takes its folders over, and answers again.
  void HangDisk(int shard);
  void TakeOver(int shard);
  // Apart from the shard beside it.
  // One of them, or all.
  void StopServers();
  void StopJob();
  // In a lull, where nothing else is wrong.
  void StopInOrder();
  void FailFolder(absl::Duration duration);
  void OnServerExit(SimulatedServer& server);
  void OnWorkerExit(SimulatedWorker& worker);
  void LookWhetherSettled();
  // Who hangs holds up the others no longer than it may.
  void CheckHolds();
  void CheckStopping();
  // Until that coordinator has ended, whoever starts another.
  bool IsJobStopped() const {
    const Process& coordinator = servers_[0]->process();
    return coordinator.is_alive() && &coordinator == stopped_process_ &&
           coordinator.life() == stopped_life_;
  }
  void FaultOnPath();
  absl::Status OnFileOperation(FileOperation operation, const std::string& path);
  // The newest, if another one is left.
  void DamageCheckpoint();
  absl::Status Damage(const std::string& directory, const std::string& file);
  void CheckProgress();
  void CheckEnd();
  void CheckReasons();
  bool AnyAwaitsDisk() const {
    return std::any_of(servers_.begin(), servers_.end(),
                       [](const auto& server) { return server->awaits_disk(); });
  }
  bool IsOver();
  absl::Duration UpTo(absl::Duration longest) {
    return chance_.Between(absl::Milliseconds(1), longest);
  }
  SimulatedWorker& AnyWorker() { return *workers_[chance_.Below(num_workers_)]; }
  SimulatedServer& AnyServer() { return *servers_[chance_.Below(servers_.size())]; }

  const SimulationOptions options_;
  const Scenario scenario_;
  World world_;
  Chance chance_;  // of the faults
  Network network_;
  SimulatedFileSystem disk_;
  std::unique_ptr<SimulatedReplica> replica_;  // null: there is none
  Audit audit_;
  ClusterContext cluster_;
  std::vector<std::unique_ptr<SimulatedServer>> servers_;
  std::vector<std::unique_ptr<SimulatedServer>> replaced_;  // by others, which have their folders
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  const int num_workers_;  // that can take part; the old one comes after them

  bool is_calm_ = false;
  bool is_stormy_ = false;
  bool has_ended_ = false;  // in the calm
  // Of the coordinator whose job an operator has stopped; another process may take its place.
  const Process* stopped_process_ = nullptr;
  int64_t stopped_life_ = 0;
  absl::Time job_stopped_at_;
  bool must_save_ = false;  // who was told to stop in a lull, which is not over
  std::map<SimulatedServer*, absl::Duration> stopping_for_;  // without what they were frozen
  std::set<std::pair<SimulatedServer*, int64_t>> starting_;  // that have exited, in which life
  absl::Time settled_since_ = absl::InfiniteFuture();        // from the last fault
  absl::Time unbroken_since_ = absl::InfiniteFuture();       // but for workers that hang
  absl::Time hung_at_ = absl::InfinitePast();                // when the last one did
  std::map<SimulatedWorker*, absl::Time> holds_since_;       // who hangs and is waited for
  int num_hanging_ = 0;
  int64_t rounds_then_ = 0;
  int num_storms_ = 0;
  absl::Time mended_at_;
  int64_t num_faults_ = 0;
  absl::Time disk_fails_until_ = absl::InfinitePast();
  absl::Time folder_fails_until_ = absl::InfinitePast();
  absl::Time reads_fail_until_ = absl::InfinitePast();
  int64_t reads_until_failure_ = -1;
  bool is_damaging_ = false;  // the disk, which does what it is told meanwhile
  int64_t operations_until_crash_ = -1;
  SimulatedServer* crashes_on_disk_ = nullptr;
  int64_t rounds_told_ = 0;
  int64_t work_told_ = 0;
  absl::Time told_at_;
  absl::Time committed_at_;
  absl::Duration longest_round_;
  int64_t rounds_seen_ = 0;
  absl::Time progress_at_;
};

Run::Run(const SimulationOptions& options)
    : options_(options),
      scenario_(MakeScenario(options.seed, options.num_rounds)),
      world_(options.seed, options.story),
      chance_(Chance::Mix(options.seed + 1)),
      network_(&world_, scenario_.longest_delay),
      audit_(
          scenario_.coordinator.job, options.story == nullptr
                                         ? Audit::Story(nullptr)
                                         : [this](const std::string& line) { world_.Tell(line); }),
      num_workers_(scenario_.num_workers) {
  cluster_.world = &world_;
  cluster_.network = &network_;
  cluster_.audit = &audit_;
  cluster_.disk = &disk_;
  cluster_.coordinator = scenario_.coordinator;
  cluster_.keep = scenario_.keep;
  cluster_.journals = scenario_.journals;
  if (scenario_.has_replica) {
    replica_ = std::make_unique<SimulatedReplica>(
        &world_, "/journal",
        scenario_.replica_has_checkpoints ? scenario_.coordinator.checkpoint_dir : "",
        Chance::Mix(options.seed + 2));
    cluster_.replica = replica_.get();
  }
  disk_.SetFaultHook([this](FileOperation operation, const std::string& path) {
    return OnFileOperation(operation, path);
  });
  for (int shard = 0; shard < scenario_.coordinator.num_shards; ++shard) {
    servers_.push_back(
        std::make_unique<SimulatedServer>(&cluster_, shard, absl::StrCat("server ", shard)));
    cluster_.servers.push_back(servers_.back().get());
  }
  for (int i = 0; i < num_workers_ + (scenario_.has_old_worker ? 1 : 0); ++i) {
    SimulatedWorker::Config config;
    config.name = absl::StrCat(i < num_workers_ ? "worker-" : "old-worker-", i);
    config.longest_step = scenario_.longest_step * (i == 0 ? 3 : 1);
    config.encodings = {Encoding::Kind::kFp32};
    if (i < num_workers_) {
      for (const Encoding encoding : kAllEncodings) config.encodings.push_back(encoding.kind());
    }
    if (i == num_workers_ && scenario_.speaks_old_wire) --config.wire_version;
    config.tells_little = i == 0 && scenario_.has_foreign_worker;
    config.asks_ahead = i % 3 != 0;
    workers_.push_back(std::make_unique<SimulatedWorker>(&cluster_, config));
  }
}

SimulationResult Run::Go() {
  world_.Tell("seed ", options_.seed, ": ", scenario_.text);
  for (auto& server : servers_) StartAgain(*server, UpTo(absl::Seconds(2)));
  for (auto& worker : workers_) StartAgain(*worker, UpTo(absl::Seconds(2)));
  world_.After(kSupervision, [this] { Supervise(); });
  if (chance_.OneIn(4)) {
    // Before anything was ever wrong.
    world_.After(UpTo(absl::Seconds(5)), [this] { StopInOrder(); });
    world_.After(UpTo(absl::Seconds(20)), [this] { BeginStorm(); });
  } else {
    BeginStorm();
  }
  while (!IsOver() && audit_.violation().empty() && world_.Step()) {
  }
  SimulationResult result;
  result.violation = audit_.violation();
  result.scenario = scenario_.text;
  result.rounds = audit_.rounds_committed();
  result.contributions = audit_.num_counted();
  result.restores = audit_.num_restores();
  result.resumes = audit_.num_resumes();
  result.faults = num_faults_;
  result.events = world_.num_events();
  result.time = world_.Now() - absl::UnixEpoch();
  result.fingerprint = Chance::Mix(static_cast<uint64_t>(result.events)) ^
                       Chance::Mix(static_cast<uint64_t>(absl::ToInt64Nanoseconds(result.time))) ^
                       world_.chance()();
  world_.Tell(result.violation.empty() ? "the end" : "VIOLATION: ", result.violation);
  return result;
}

void Run::BeginStorm() {
  if (is_calm_) return;
  audit_.SetQuiet(false);
  must_save_ = false;
  audit_.SetMustSave(false);
  is_stormy_ = true;
  PlanFault(++num_storms_);
  if (replica_ != nullptr) PlanReplicaFault(num_storms_);
  world_.After(UpTo(kLongestStorm), [this] { EndStorm(); });
}

void Run::EndStorm() {
  if (is_calm_) return;
  if (num_storms_ == kMaxStorms) return BeginCalm();
  is_stormy_ = false;
  Mend();
  const absl::Duration lull = UpTo(kLongestLull);
  world_.After(lull, [this] { BeginStorm(); });
  if (chance_.OneIn(2)) world_.After(UpTo(lull), [this] { StopInOrder(); });
}

void Run::PlanFault(int storm) {
  world_.After(UpTo(2 * scenario_.fault_pause), [this, storm] {
    if (!is_stormy_ || storm != num_storms_) return;
    ++num_faults_;
    Strike(static_cast<Fault>(chance_.Below(static_cast<int>(Fault::kLast))));
    PlanFault(storm);
  });
}

void Run::Strike(Fault fault) {
  const absl::Duration lease = scenario_.coordinator.lease;
  switch (fault) {
    case Fault::kKillWorker: {
      SimulatedWorker& worker = AnyWorker();
      if (!worker.process().is_alive()) return;
      worker.Crash(/*with_machine=*/chance_.OneIn(2));
      return StartAgain(worker, UpTo(2 * lease));
    }
    case Fault::kFreezeWorker: {
      SimulatedWorker& worker = AnyWorker();
      if (!worker.process().is_alive() || worker.process().is_frozen()) return;
      const absl::Duration time = UpTo(3 * lease);
      world_.Tell(worker.process().name(), " freezes for ", absl::FormatDuration(time));
      worker.process().Freeze();
      world_.After(time, [&worker] {
        if (worker.process().is_frozen()) worker.process().Thaw();
      });
      return;
    }
    case Fault::kStopWorker: {
      SimulatedWorker& worker = AnyWorker();
      if (worker.process().is_alive()) worker.RequestStop();
      return;
    }
    case Fault::kHangWorker: {
      SimulatedWorker& worker = AnyWorker();
      if (worker.process().is_alive()) worker.Hang(UpTo(3 * scenario_.coordinator.round_timeout));
      return;
    }
    case Fault::kKillServer: {
      // What nobody saves, every server that ends loses.
      if (scenario_.coordinator.checkpoint_dir.empty() && !chance_.OneIn(8)) return;
      SimulatedServer& server = chance_.OneIn(2) ? *servers_[0] : AnyServer();
      if (server.process().is_alive()) KillServer(server, /*with_machine=*/chance_.OneIn(2));
      return;
    }
    case Fault::kFreezeServer: {
      SimulatedServer& server = AnyServer();
      if (!server.process().is_alive() || server.process().is_frozen()) return;
      const absl::Duration time = UpTo(chance_.OneIn(4) ? absl::Seconds(40) : 2 * lease);
      world_.Tell(server.process().name(), " freezes for ", absl::FormatDuration(time));
      server.process().Freeze();
      world_.After(time, [&server] {
        if (server.process().is_frozen()) server.process().Thaw();
      });
      return;
    }
    case Fault::kStopServers:
      if (scenario_.coordinator.checkpoint_dir.empty() && !chance_.OneIn(8)) return;
      return StopServers();
    case Fault::kStopJob:
      if (scenario_.coordinator.checkpoint_dir.empty() || !chance_.OneIn(4)) return;
      return StopJob();
    case Fault::kCut:
    case Fault::kSilence:
    case Fault::kSlowDown:
      return FaultOnPath();
    case Fault::kDamage: {
      SimulatedWorker& worker = AnyWorker();
      const absl::Duration time = UpTo(absl::Seconds(1));
      world_.Tell("pushes of ", worker.process().name(), " are damaged for ",
                  absl::FormatDuration(time));
      return worker.DamagePushes(time);
    }
    case Fault::kFillDisk: {
      world_.Tell("the disk is full");
      disk_.SetCapacity(0);
      world_.After(UpTo(absl::Seconds(5)),
                   [this] { disk_.SetCapacity(std::numeric_limits<int64_t>::max()); });
      return;
    }
    case Fault::kFailDisk:
      disk_fails_until_ = world_.Now() + UpTo(absl::Seconds(3));
      world_.Tell("the disk fails now and then");
      return;
    case Fault::kFailFolder:
      return FailFolder(UpTo(absl::Seconds(chance_.OneIn(2) ? 20 : 3)));
    case Fault::kCrashOnDisk:
      crashes_on_disk_ = &AnyServer();
      operations_until_crash_ = chance_.Below(60);
      return;
    case Fault::kFailReads:
      if (chance_.OneIn(2)) {
        world_.Tell("the disk fails to read once");
        reads_until_failure_ = chance_.Below(20);
        return;
      }
      reads_fail_until_ = world_.Now() + UpTo(absl::Seconds(3));
      world_.Tell("the disk cannot be read");
      return;
    case Fault::kDamageCheckpoint:
      return DamageCheckpoint();
    case Fault::kCheckpoint: {
      Coordinator* const coordinator = servers_[0]->coordinator();
      if (coordinator == nullptr || servers_[0]->process().is_frozen()) return;
      servers_[0]->RequestCheckpoint();
      return;
    }
    case Fault::kTakeOver:
      return HangDisk(static_cast<int>(chance_.Below(servers_.size())));
    case Fault::kLast:
      return;
  }
}

void Run::PlanReplicaFault(int storm) {
  world_.After(UpTo(8 * scenario_.fault_pause), [this, storm] {
    if (!is_stormy_ || storm != num_storms_) return;
    ++num_faults_;
    Strike(static_cast<ReplicaFault>(chance_.Below(static_cast<int>(ReplicaFault::kLast))));
    PlanReplicaFault(storm);
  });
}

void Run::Strike(ReplicaFault fault) {
  switch (fault) {
    case ReplicaFault::kCrash:
      return replica_->Crash(/*with_machine=*/chance_.OneIn(2), UpTo(absl::Seconds(5)));
    case ReplicaFault::kCut:
      return replica_->Cut(UpTo(absl::Seconds(5)));
    case ReplicaFault::kCutOnce:
      return replica_->CutOnce(chance_.Below(60));
    case ReplicaFault::kCrashOnDisk:
      return replica_->CrashOnDisk(chance_.Below(60));
    case ReplicaFault::kFillDisk:
      return replica_->FillDisk(UpTo(absl::Seconds(5)));
    case ReplicaFault::kLoseDisk: {
      // Those that have everything are there.
      const bool are_up = std::all_of(servers_.begin(), servers_.end(), [](const auto& server) {
        return server->process().is_alive();
      });
      if (are_up) replica_->LoseDisk(static_cast<int>(servers_.size()));
      return;
    }
    case ReplicaFault::kLoseServersDisk: {
      const int shard = static_cast<int>(chance_.Below(servers_.size()));
      SimulatedServer& server = *servers_[shard];
      if (!server.process().is_alive() || !replica_->HasWhole(shard)) return;
      server.Crash(/*with_machine=*/false);
      is_damaging_ = true;
      server.LoseDisk(scenario_.replica_has_checkpoints && chance_.OneIn(2)
                          ? SimulatedServer::Loss::kCheckpoints
                          : SimulatedServer::Loss::kAll);
      is_damaging_ = false;
      if (chance_.OneIn(2)) replica_->Crash(/*with_machine=*/true, UpTo(absl::Seconds(5)));
      return StartAgain(server, UpTo(absl::Seconds(10)));
    }
    case ReplicaFault::kLast:
      return;
  }
}

void Run::FaultOnPath() {
  const absl::Duration lease = scenario_.coordinator.lease;
  SimulatedServer& server = AnyServer();
  Process* other = &AnyWorker().process();
  Lane lane = chance_.OneIn(2) ? Lane::kBulk : Lane::kControl;
  if (servers_.size() > 1 && chance_.OneIn(3)) {
    other = &servers_[0]->process();
    lane = Lane::kControl;
  }
  if (other == &server.process()) return;
  const bool between_servers = other == &servers_[0]->process();
  const absl::Duration time = UpTo(chance_.OneIn(4) ? absl::Seconds(40) : 2 * lease);
  if (between_servers && chance_.OneIn(4)) {
    Process* sender = other;
    Process* receiver = &server.process();
    if (chance_.OneIn(2)) std::swap(sender, receiver);
    world_.Tell("what ", sender->name(), " sends to ", receiver->name(), " is lost for ",
                absl::FormatDuration(time));
    return network_.Lose(*sender, *receiver, lane, time);
  }
  const absl::string_view lane_text = lane == Lane::kBulk ? " for weights" : " for calls";
  switch (chance_.Below(3)) {
    case 0:
      world_.Tell("the path of ", server.process().name(), " and ", other->name(), lane_text,
                  " is cut for ", absl::FormatDuration(time));
      return network_.Cut(server.process(), *other, lane, time);
    case 1: {
      const bool both_ways = chance_.OneIn(2);
      world_.Tell("the path of ", server.process().name(), " and ", other->name(), lane_text,
                  " is silent for ", absl::FormatDuration(time), both_ways ? "" : ", one way");
      if (chance_.OneIn(2)) {
        return network_.Silence(server.process(), *other, lane, both_ways, time);
      }
      return network_.Silence(*other, server.process(), lane, both_ways, time);
    }
    default:
      return network_.SlowDown(server.process(), *other, lane, UpTo(absl::Seconds(2)), time);
  }
}

void Run::KillServer(SimulatedServer& server, bool with_machine) {
  server.Crash(with_machine);
  StartAgain(server, UpTo(absl::Seconds(10)));
}

void Run::HangDisk(int shard) {
  SimulatedServer& server = *servers_[shard];
  if (!scenario_.journals || !server.process().is_alive() || server.has_hanging_disk()) return;
  server.HangDisk();
  // Nothing depends on how long the next server waits before it does.
  world_.After(UpTo(FolderLock::kPatience), [this, shard, &server, life = server.process().life()] {
    const bool is_same = servers_[shard].get() == &server && server.process().life() == life &&
                         server.has_hanging_disk();
    if (is_same) TakeOver(shard);
  });
}

void Run::TakeOver(int shard) {
  SimulatedServer* const old = servers_[shard].get();
  audit_.OnServerEnded();
  replaced_.push_back(std::move(servers_[shard]));
  cluster_.replaced.push_back(old);
  servers_[shard] = std::make_unique<SimulatedServer>(
      &cluster_, shard, absl::StrCat("server ", shard, " (", replaced_.size() + 1, ")"));
  cluster_.servers[shard] = servers_[shard].get();
  servers_[shard]->Start();
  world_.After(UpTo(absl::Seconds(3)), [old] { old->ResumeDisk(); });
}

void Run::StopServers() {
  if (!chance_.OneIn(3)) return AnyServer().RequestStop();
  for (auto& server : servers_) {
    world_.After(UpTo(absl::Milliseconds(chance_.OneIn(2) ? 1 : 500)),
                 [raw = server.get()] { raw->RequestStop(); });
  }
}

void Run::StopJob() {
  if (is_calm_ || IsJobStopped() || servers_[0]->coordinator() == nullptr) return;
  world_.Tell("an operator stops the job");
  stopped_process_ = &servers_[0]->process();
  stopped_life_ = stopped_process_->life();
  job_stopped_at_ = world_.Now();
  servers_[0]->StopJob();
}

void Run::FailFolder(absl::Duration duration) {
  world_.Tell("nothing can be written into the checkpoint folder for ",
              absl::FormatDuration(duration));
  folder_fails_until_ = world_.Now() + duration;
}

void Run::StopInOrder() {
  if (is_stormy_ || is_calm_ || scenario_.coordinator.checkpoint_dir.empty()) return;
  if (num_storms_ > 0 && settled_since_ == absl::InfiniteFuture()) return;
  must_save_ = true;
  audit_.SetMustSave(true);
  ++num_faults_;
  chance_.OneIn(3) ? StopJob() : StopServers();
  // Nothing is lost either by what there is time for: another folder, another connection.
  const bool has_time = scenario_.coordinator.stop_timeout >= absl::Seconds(20);
  if (!scenario_.coordinator.fallback_dir.empty() && has_time && chance_.OneIn(2)) {
    FailFolder(absl::Seconds(10));
  }
  if (servers_.size() == 1 || !has_time || !chance_.OneIn(2)) return;
  Process& other = servers_[chance_.Between(1, servers_.size() - 1)]->process();
  world_.After(UpTo(absl::Milliseconds(300)), [this, &other] {
    const absl::Duration time = UpTo(absl::Seconds(1));
    world_.Tell("the path of server 0 and ", other.name(), " is cut for ",
                absl::FormatDuration(time));
    network_.Cut(servers_[0]->process(), other, Lane::kControl, time);
  });
}

absl::Status Run::OnFileOperation(FileOperation operation, const std::string& path) {
  if (is_damaging_) return absl::OkStatus();
  if (cluster_.is_draining) return absl::UnavailableError("the process has ended");
  const bool reads = operation == FileOperation::kRead;
  const bool writes = !reads && operation != FileOperation::kRemove;
  const bool fails_once = reads && reads_until_failure_ >= 0 && reads_until_failure_-- == 0;
  if (reads && (fails_once || world_.Now() < reads_fail_until_)) {
    return absl::InternalError(kUnreadable);
  }
  if (writes && operations_until_crash_ >= 0 && crashes_on_disk_->process().is_alive() &&
      operations_until_crash_-- == 0) {
    SimulatedServer* const server = crashes_on_disk_;
    world_.After(absl::ZeroDuration(), [this, server] {
      if (server->process().is_alive()) KillServer(*server, /*with_machine=*/true);
    });
    return absl::UnavailableError("the machine loses power");
  }
  if (writes && world_.Now() < folder_fails_until_ &&
      absl::StartsWith(path, scenario_.coordinator.checkpoint_dir)) {
    return absl::PermissionDeniedError("the checkpoint folder cannot be written");
  }
  if (writes && world_.Now() < disk_fails_until_ && chance_.OneIn(10)) {
    return absl::DataLossError("the disk answers with an error");
  }
  return absl::OkStatus();
}

void Run::DamageCheckpoint() {
  const Coordinator* const coordinator = servers_[0]->coordinator();
  // What was verified and is being loaded is trusted.
  if (coordinator == nullptr || coordinator->phase() != CoordinatorPhase::kRunning) return;
  // What is cut off because nothing fits is there again after a power cut.
  const CoordinatorConfig& config = scenario_.coordinator;
  if (disk_.FreeBytes(config.checkpoint_dir).value_or(0) == 0) return;
  is_damaging_ = true;
  std::vector<CheckpointEntry> entries;
  for (const std::string& folder : {config.checkpoint_dir, config.fallback_dir}) {
    if (folder.empty()) continue;
    auto some = ListWholeCheckpoints(disk_, folder);
    if (some.ok()) entries.insert(entries.end(), some->begin(), some->end());
  }
  is_damaging_ = false;
  std::stable_sort(
      entries.begin(), entries.end(),
      [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.round > b.round; });
  if (entries.size() < 2) return;
  const CheckpointEntry& newest = entries.front();
  is_damaging_ = true;
  const auto other = std::find_if(
      entries.begin() + 1, entries.end(),
      [this](const CheckpointEntry& entry) { return VerifyCheckpoint(disk_, entry.path).ok(); });
  is_damaging_ = false;
  if (audit_.IsDamaged(newest.path) || other == entries.end()) return;
  const auto names = disk_.List(newest.path);
  if (!names.ok() || names->empty()) return;
  const std::string file = absl::StrCat(newest.path, "/", (*names)[chance_.Below(names->size())]);
  is_damaging_ = true;
  const absl::Status damaged = Damage(newest.path, file);
  // Some bits do not matter.
  const bool is_damaged = !VerifyCheckpoint(disk_, newest.path).ok();
  is_damaging_ = false;
  world_.Tell(file, is_damaged ? " is damaged " : " has lost nothing ", damaged.message());
  if (!is_damaged) return;
  audit_.OnDamaged(newest.path, other->round, scenario_.replica_has_checkpoints);
  // It shows where it is needed.
  if (!chance_.OneIn(2)) return;
  SimulatedServer& server = AnyServer();
  if (server.process().is_alive()) KillServer(server, /*with_machine=*/false);
}

// A bit that flips, an end that is missing, or a file that is gone.
absl::Status Run::Damage(const std::string& directory, const std::string& file) {
  ASSIGN_OR_RETURN(std::string bytes, disk_.ReadWholeFile(file, int64_t{1} << 30));
  const int64_t place = chance_.Below(static_cast<int64_t>(bytes.size()));
  const int64_t kind = chance_.Below(4);
  if (kind == 0) {
    RETURN_IF_ERROR(disk_.RemoveAll(file));
    return disk_.SyncDirectory(directory);
  }
  if (kind == 1) {
    bytes.resize(place);
  } else {
    bytes[place] = static_cast<char>(bytes[place] ^ 1 << chance_.Below(8));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> out,
                   disk_.Create(file, FileSystem::IfExists::kTruncate));
  RETURN_IF_ERROR(out->Append(bytes));
  RETURN_IF_ERROR(out->Sync());
  return out->Close();
}

void Run::StartAgain(SimulatedWorker& worker, absl::Duration pause) {
  world_.After(pause, [&worker] {
    if (!worker.process().is_alive()) worker.Start();
  });
}

void Run::StartAgain(SimulatedServer& server, absl::Duration pause) {
  world_.After(pause, [this, &server, life = server.process().life()] {
    starting_.erase({&server, life});
    const bool is_replaced = std::find(cluster_.replaced.begin(), cluster_.replaced.end(),
                                       &server) != cluster_.replaced.end();
    // Unless somebody else has done so.
    if (!is_replaced && server.process().life() == life && !server.process().is_alive()) {
      server.Start();
    }
  });
}

bool Run::IsOver() {
  const SimulatedServer& coordinator = *servers_[0];
  if (!coordinator.completed_rounds().has_value()) return false;
  if (!is_calm_) return true;
  if (!has_ended_) CheckEnd();
  // The others hear of it.
  return std::all_of(servers_.begin(), servers_.end(),
                     [](const auto& server) { return server->has_exited(); });
}

void Run::CheckEnd() {
  has_ended_ = true;
  progress_at_ = world_.Now();
  const int64_t total = *servers_[0]->completed_rounds();
  if (!scenario_.coordinator.checkpoint_dir.empty() && audit_.published() != Round(total)) {
    audit_.Fail("the job is over, and the newest checkpoint is of round ",
                audit_.published().value(), " of ", total);
  }
}

// What a supervisor and an operator do with processes that exit, and what nobody may exit with.
void Run::Supervise() {
  world_.After(kSupervision, [this] { Supervise(); });
  for (auto& server : servers_) {
    if (server->has_exited()) OnServerExit(*server);
  }
  for (auto& worker : workers_) {
    if (!worker->process().is_alive() && worker->has_exited()) OnWorkerExit(*worker);
  }
  // What is left of the job is done in the calm.
  if (!is_calm_ && !scenario_.is_stormy_to_the_end &&
      audit_.next_round() + audit_.rounds_since_restore() >= Round(options_.num_rounds * 3 / 4)) {
    BeginCalm();
  }
  LookWhetherSettled();
  CheckHolds();
  CheckStopping();
  CheckReasons();
  if (audit_.times_gone_back() > audit_.num_server_ends()) {
    audit_.Fail("rounds were gone back ", audit_.times_gone_back(),
                " times, and servers have ended ", audit_.num_server_ends(), " times");
  }
  if (is_calm_) CheckProgress();
}

void Run::OnServerExit(SimulatedServer& server) {
  const absl::Status& status = server.exit_status();
  if (!status.ok() && !absl::IsCancelled(status) && !IsOfDisk(status)) {
    audit_.Fail(server.process().name(), " exits: ", status.ToString());
  }
  // The others hear of the end of a job before its coordinator has ended.
  Coordinator* const coordinator = servers_[0]->coordinator();
  const bool is_end = coordinator != nullptr && coordinator->outcome().has_value();
  if (server.process().is_alive() || has_ended_ || is_end) return;
  if (!starting_.insert({&server, server.process().life()}).second) return;
  StartAgain(server, UpTo(is_stormy_ ? absl::Seconds(10) : absl::Seconds(1)));
}

void Run::OnWorkerExit(SimulatedWorker& worker) {
  const absl::Status& status = worker.exit_status();
  const bool can_take_part = &worker != workers_.back().get() || !scenario_.has_old_worker;
  // Or told to stop, and the servers were not there to take its round.
  const bool has_served = status.ok() || absl::IsDeadlineExceeded(status) || IsOfDisk(status);
  const bool is_refused = !status.ok() && RemedyFor(status) == Remedy::kGiveUp;
  const bool is_content = can_take_part ? has_served : is_refused;
  if (!is_content) audit_.Fail(worker.process().name(), " gives up: ", status.ToString());
  if (can_take_part && !has_ended_ && !IsJobStopped()) {
    StartAgain(worker, UpTo(absl::Seconds(2)));
  }
}

void Run::LookWhetherSettled() {
  const absl::Time now = world_.Now();
  bool is_any_stopping = false;
  for (const auto& server : servers_) {
    if (!server->process().is_alive()) mended_at_ = now;
    is_any_stopping |= server->is_stopping();
  }
  for (const auto& server : replaced_) {
    if (server->process().is_alive()) mended_at_ = now;
  }
  for (const auto& worker : workers_) {
    if (worker->is_hanging()) hung_at_ = now;
  }
  const absl::Duration settling = 2 * scenario_.coordinator.lease + kSettlingTime;
  const absl::Time settles = std::max(mended_at_, network_.held_up_until());
  const bool is_unbroken = !is_stormy_ && now - settles > settling;
  unbroken_since_ = is_unbroken ? std::min(unbroken_since_, now) : absl::InfiniteFuture();
  const bool is_settled = is_unbroken && now - hung_at_ > settling;
  settled_since_ = is_settled ? std::min(settled_since_, now) : absl::InfiniteFuture();
  // Who holds up a server that stops is dropped.
  audit_.SetQuiet(is_settled && !is_any_stopping);
  audit_.SetMustSave(!scenario_.coordinator.checkpoint_dir.empty() && (is_settled || must_save_));
}

void Run::CheckHolds() {
  const absl::Time now = world_.Now();
  const bool goes_on =
      std::exchange(rounds_then_, audit_.rounds_committed()) != audit_.rounds_committed();
  Coordinator* const coordinator = servers_[0]->coordinator();
  bool is_anyone_waiting = false;
  if (coordinator != nullptr && coordinator->phase() == CoordinatorPhase::kRunning) {
    for (const WorkerSnapshot& worker : coordinator->Snapshot(now).workers) {
      is_anyone_waiting |= worker.state == "member" && worker.activity == "wait";
    }
  }
  const int before = std::exchange(
      num_hanging_, static_cast<int>(std::count_if(workers_.begin(), workers_.end(),
                                                   [](const auto& w) { return w->is_hanging(); })));
  // Without the one before it, the next one has its own time.
  if (goes_on || !is_anyone_waiting || unbroken_since_ == absl::InfiniteFuture() ||
      num_hanging_ < before) {
    holds_since_.clear();
  }
  // Of those that say that they push, each may only wait for the one before it.
  const absl::Duration longest =
      num_hanging_ * scenario_.coordinator.round_timeout + scenario_.coordinator.lease + kHoldSlack;
  for (const auto& worker : workers_) {
    if (!worker->is_hanging() || !is_anyone_waiting) {
      holds_since_.erase(worker.get());
      continue;
    }
    const absl::Time since = holds_since_.try_emplace(worker.get(), now).first->second;
    if (now - since <= longest) continue;
    audit_.Fail(worker->process().name(), " hangs, and the others have waited for it for ",
                absl::FormatDuration(now - since), "; allowed are ", absl::FormatDuration(longest),
                ": ", coordinator->Snapshot(now).waiting_for);
  }
}

// Who was told to stop ends in time.
void Run::CheckStopping() {
  for (const auto& server : servers_) {
    absl::Duration& time = stopping_for_[server.get()];
    if (!server->is_stopping()) {
      time = absl::ZeroDuration();
    } else if (!server->process().is_frozen()) {
      time += kSupervision;
    }
    if (time > scenario_.coordinator.stop_timeout + kStopSlack) {
      audit_.Fail(server->process().name(), " was told to stop and has not exited after ",
                  absl::FormatDuration(time));
    }
  }
  // A coordinator that was told to stop as well has the time that it has for that.
  if (!IsJobStopped() || servers_[0]->is_stopping()) return;
  const absl::Time since = std::max(job_stopped_at_, settled_since_);
  const absl::Duration longest = kLongestEnding + 2 * scenario_.coordinator.lease;
  const absl::Duration longest_with_hangs = longest + scenario_.coordinator.stop_timeout;
  if (world_.Now() - std::max(job_stopped_at_, unbroken_since_) > longest_with_hangs) {
    audit_.Fail("an operator has stopped the job, and it is not over after ",
                absl::FormatDuration(longest_with_hangs), ", though nothing but workers hang");
  }
  if (world_.Now() - since > longest) {
    const ClusterSnapshot snapshot = servers_[0]->coordinator()->Snapshot(world_.Now());
    audit_.Fail("nothing is broken, an operator has stopped the job, and it is not over after ",
                absl::FormatDuration(longest), ": ", snapshot.state, ", ", snapshot.waiting_for);
  }
}

void Run::CheckReasons() {
  const absl::Time now = world_.Now();
  Coordinator* const coordinator = servers_[0]->coordinator();
  if (coordinator == nullptr || servers_[0]->process().is_frozen()) {
    told_at_ = now;
    return;
  }
  const ClusterSnapshot snapshot = servers_[0]->Snapshot();
  const bool goes_on =
      std::exchange(rounds_told_, audit_.rounds_committed()) != audit_.rounds_committed();
  if (goes_on) {
    longest_round_ = std::max(longest_round_, now - committed_at_);
    committed_at_ = now;
  }
  // Whoever comes for work may be about to hand it in.
  const bool has_come = std::exchange(work_told_, snapshot.round) != snapshot.round;
  if (goes_on || has_come || !snapshot.waiting_for.empty() || AnyAwaitsDisk()) told_at_ = now;
  // What is usual may be as long as it has ever been.
  const absl::Duration patience =
      std::max(scenario_.coordinator.lease, 2 * longest_round_) + absl::Seconds(2);
  audit_.OnSnapshot(snapshot, now - told_at_ > patience);
}

void Run::BeginCalm() {
  if (std::exchange(is_calm_, true)) return;
  is_stormy_ = false;
  Mend();
  progress_at_ = world_.Now();
}

void Run::Mend() {
  mended_at_ = world_.Now();
  world_.Tell(is_calm_ ? "calm" : "a lull");
  network_.Heal();
  if (replica_ != nullptr) replica_->Mend();
  disk_.SetCapacity(std::numeric_limits<int64_t>::max());
  disk_fails_until_ = absl::InfinitePast();
  folder_fails_until_ = absl::InfinitePast();
  reads_fail_until_ = absl::InfinitePast();
  reads_until_failure_ = -1;
  operations_until_crash_ = -1;
  for (auto& server : servers_) {
    if (server->process().is_frozen()) server->process().Thaw();
    if (!server->process().is_alive()) StartAgain(*server, UpTo(absl::Seconds(1)));
    server->ResumeDisk();
  }
  for (auto& server : replaced_) {
    if (server->process().is_frozen()) server->process().Thaw();
    server->ResumeDisk();
  }
  for (auto& worker : workers_) {
    if (worker->process().is_frozen()) worker->process().Thaw();
    if (!worker->process().is_alive()) StartAgain(*worker, UpTo(absl::Seconds(1)));
  }
}

void Run::CheckProgress() {
  const absl::Time now = world_.Now();
  const bool hangs = std::any_of(workers_.begin(), workers_.end(),
                                 [](const auto& worker) { return worker->is_hanging(); });
  if (hangs || audit_.rounds_committed() != rounds_seen_) {
    rounds_seen_ = audit_.rounds_committed();
    progress_at_ = now;
  }
  const absl::Duration longest = kLongestPause + 6 * scenario_.coordinator.lease;
  if (now - progress_at_ < longest) return;
  std::string reason = "the coordinator is not there";
  if (Coordinator* const coordinator = servers_[0]->coordinator(); coordinator != nullptr) {
    const ClusterSnapshot snapshot = coordinator->Snapshot(now);
    reason = absl::StrCat(snapshot.state, ", ", snapshot.waiting_for);
  }
  for (const auto& server : servers_) {
    absl::StrAppend(&reason, "; ", server->process().name(), ": ", server->ShardWaitsFor());
  }
  audit_.Fail("nothing is broken, and no round was committed for ", absl::FormatDuration(longest),
              ": ", reason);
}

}  // namespace

SimulationResult Simulate(const SimulationOptions& options) { return Run(options).Go(); }

}  // namespace lodestar::simulation
