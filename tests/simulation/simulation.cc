// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/runtime/json.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_lock.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/coordinator/coordinator_memory_json.h"
#include "server/durability/journal/journal_reader.h"
#include "server/durability/journal/journal_segments.h"
#include "server/host/coordinator_journal.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/cluster_watch.h"
#include "tests/simulation/folder_copy.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"

namespace lodestar::simulation {
namespace {

constexpr absl::Duration kLongestStorm = absl::Seconds(40);
constexpr absl::Duration kLongestLull = absl::Seconds(30);
// Maximum time, beside two leases, until all have found each other again after the last fault.
constexpr absl::Duration kSettlingTime = absl::Seconds(5);
constexpr int kMaxStorms = 20;
// Maximum time from the end of the job until a site has ended, too.
constexpr absl::Duration kLongestFarewell = absl::Seconds(60);
// Extra time for rounds of a site, which also wait for rounds of the root.
constexpr absl::Duration kSlackOfSites = absl::Seconds(60);

class Run {
 public:
  explicit Run(const SimulationOptions& options);
  ~Run();
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
    kPause,
    kTakeOver,
    kLast,
  };
  // Faults of the replica, if there is one.
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

  // A cluster of the run, with its watch and its state.
  struct Level {
    Level(const SimulatedCluster::Deps& deps, const ClusterScenario& scenario,
          const std::string& name, uint64_t replica_seed)
        : cluster(deps, scenario, name, replica_seed), watch(&cluster) {}

    SimulatedCluster cluster;
    ClusterWatch watch;
    // A server or the job was told to stop in a lull, and the lull is not over.
    bool must_save = false;
    absl::Time pauses_until = absl::InfinitePast();  // an operator pauses the job until then
  };

  void BeginStorm();
  void EndStorm();
  void PlanFault(Level& level, int storm);
  void Strike(Level& level, Fault fault);
  void PlanReplicaFault(int storm);
  void Strike(ReplicaFault fault);
  // Plans the restart of a proxy, if closed connections end incarnations.
  void PlanProxyRestart(int storm);
  // Restarts the proxy of all root workers for a while, or the proxy of one worker for a moment.
  void RestartProxy();
  // Notes that the process may be unable to connect in time, for `duration` and a little longer.
  void Disturb(SimulatedCluster& cluster, const Process& process, absl::Duration duration) {
    absl::Time& until = cluster.context.disturbed_until[&process];
    until = std::max(until, world_.Now() + duration);
  }
  // Plans that disks with journals of the root's servers go back to an older state.
  void PlanGoingBack(int storm);
  void CopyOrGoBack();
  void GoBack(int shard, const FolderCopy& older);
  // Damages a file of the coordinator's journal. Returns true if its reader notices the damage.
  bool DamageCoordinatorJournal();
  // Returns the folders of journals on the disk of a server. Shard 0 has the coordinator's, too.
  std::vector<std::string> JournalsOf(int shard);
  // Return the last record of a journal; the highest record of the coordinator that journals of
  // other shards know; and, as KnownEndOf(), the highest record of a shard that the coordinator's
  // journal knows.
  uint64_t LastRecord(const std::string& folder);
  uint64_t HighestFollowed(int except_shard);
  uint64_t CoordinatorJournalId();
  // Returns 0 if the checkpoint belongs to another journal, or is complete by itself.
  uint64_t RecordOfNewestCheckpoint(uint64_t journal_id);
  uint64_t KnownEndOf(int shard);
  // Does what an operator does about a coordinator that waits for its journal.
  void LookForLostJournal();
  void PutJournalBack();
  void BeginCalm();
  // Repair everything that is broken.
  void Mend();
  void Mend(Level& level);
  void Supervise();
  void StartAgain(SimulatedWorker& worker, absl::Duration pause);
  void StartAgain(SimulatedCluster& cluster, SimulatedServer& server, absl::Duration pause);
  void KillServer(SimulatedCluster& cluster, SimulatedServer& server, bool with_machine);
  // Makes a server's disk hang for so long that another server takes over its folders, and then
  // makes it answer again.
  void HangDisk(SimulatedCluster& cluster);
  void TakeOver(SimulatedCluster& cluster, int shard);
  // Stops one server in order, or all.
  void StopServers(SimulatedCluster& cluster);
  void StopJob(Level& level);
  // Stops a server or a job in a lull, when nothing else is wrong.
  void StopInOrder();
  void FailFolder(SimulatedCluster& cluster, absl::Duration duration);
  void OnServerExit(SimulatedCluster& cluster, SimulatedServer& server);
  void OnWorkerExit(Level& level, SimulatedWorker& worker);
  void LookWhetherSettled();
  void FaultOnPath(SimulatedCluster& cluster);
  void DamagePushes(SimulatedCluster& cluster);
  // Damages the newest checkpoint, if another intact one is left.
  void DamageCheckpoint(SimulatedCluster& cluster);
  absl::Status Damage(SimulatedFileSystem& disk, const std::string& directory,
                      const std::string& file);
  void CheckProgress();
  void CheckEnd();
  // Checks, after the job is over, that sites end, too.
  void CheckSitesEnd();
  bool IsOver();
  // Returns the violation of the first level that has one. Empty means that none has.
  const std::string& violation() const;
  absl::Duration UpTo(absl::Duration longest) {
    return chance_.Between(absl::Milliseconds(1), longest);
  }
  SimulatedCluster& root() { return levels_[0]->cluster; }
  const SimulatedCluster& root() const { return levels_[0]->cluster; }
  // Returns how many workers of the cluster are sites. The sites of the root come after its other
  // workers.
  int64_t NumSitesOf(const SimulatedCluster& cluster) const {
    return cluster.is_site() ? 0 : static_cast<int64_t>(levels_.size()) - 1;
  }
  SimulatedWorker& AnyWorker(SimulatedCluster& cluster) {
    return *cluster.workers[chance_.Below(cluster.num_workers)];
  }
  SimulatedServer& AnyServer(SimulatedCluster& cluster) {
    return *cluster.servers[chance_.Below(cluster.servers.size())];
  }

  const SimulationOptions options_;
  const Scenario scenario_;
  World world_;
  Chance chance_;  // draws the faults
  Chance proxy_chance_;
  Network network_;
  std::vector<std::unique_ptr<Level>> levels_;  // the root, and its sites

  bool is_calm_ = false;
  bool is_stormy_ = false;
  bool has_ended_ = false;  // the job has ended, in the calm
  absl::Time ended_at_;
  // Servers that are about to be restarted, with the life that has exited.
  std::set<std::pair<SimulatedServer*, int64_t>> starting_;
  Peace peace_;
  absl::Time hung_at_ = absl::InfinitePast();  // when a worker hung last
  std::map<int, FolderCopy> older_;            // Older copies of the journals, by shard.
  // Newer copy of the journals of shard 0, if they have gone back.
  std::optional<FolderCopy> newer_;
  absl::Time mends_journal_at_ = absl::InfiniteFuture();
  int num_storms_ = 0;
  absl::Time mended_at_;
  int64_t num_faults_ = 0;
};

Run::Run(const SimulationOptions& options)
    : options_(options),
      scenario_(MakeScenario(options.seed, options.num_rounds)),
      world_(options.seed, options.story),
      chance_(Chance::Mix(options.seed + 1)),
      proxy_chance_(Chance::Mix(options.seed + 4)),
      network_(&world_, scenario_.longest_delay) {
  SimulatedCluster::Deps deps = {.world = &world_, .network = &network_, .chance = &chance_};
  levels_.push_back(
      std::make_unique<Level>(deps, scenario_, /*name=*/"", Chance::Mix(options.seed + 2)));
  deps.upstream = &root();
  for (size_t i = 0; i < scenario_.sites.size(); ++i) {
    levels_.push_back(std::make_unique<Level>(deps, scenario_.sites[i], absl::StrCat("site-", i),
                                              /*replica_seed=*/0));
  }
}

Run::~Run() {
  world_.Finish();
  // Levels are destroyed from the last one on, because sites use the root.
  while (!levels_.empty()) levels_.pop_back();
}

const std::string& Run::violation() const {
  const auto shows_one = [](const auto& level) {
    return !level->cluster.audit.violation().empty();
  };
  const auto found = std::find_if(levels_.begin(), levels_.end(), shows_one);
  return (found == levels_.end() ? levels_.front() : *found)->cluster.audit.violation();
}

SimulationResult Run::Go() {
  world_.Tell("seed ", options_.seed, ": ", scenario_.text);
  for (auto& level : levels_) {
    SimulatedCluster& cluster = level->cluster;
    for (auto& server : cluster.servers) StartAgain(cluster, *server, UpTo(absl::Seconds(2)));
    for (auto& worker : cluster.workers) StartAgain(*worker, UpTo(absl::Seconds(2)));
  }
  world_.After(ClusterWatch::kInterval, [this] { Supervise(); });
  if (chance_.OneIn(4)) {
    // Stops something in order before the first storm.
    world_.After(UpTo(absl::Seconds(5)), [this] { StopInOrder(); });
    world_.After(UpTo(absl::Seconds(20)), [this] { BeginStorm(); });
  } else {
    BeginStorm();
  }
  while (!IsOver() && violation().empty() && world_.Step()) {
  }
  const Audit& audit = root().audit;
  SimulationResult result;
  result.violation = violation();
  result.scenario = scenario_.text;
  result.rounds = audit.rounds_committed();
  result.restores = audit.num_restores();
  result.resumes = audit.num_resumes();
  for (const auto& level : levels_) {
    result.contributions += level->cluster.audit.num_counted();
    if (!level->cluster.is_site()) continue;
    ++result.sites;
    result.site_rounds += level->cluster.audit.rounds_committed();
  }
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
  is_stormy_ = true;
  ++num_storms_;
  for (auto& level : levels_) {
    level->cluster.audit.SetQuiet(false);
    level->must_save = false;
    level->cluster.audit.SetMustSave(false);
    PlanFault(*level, num_storms_);
  }
  if (root().replica != nullptr) PlanReplicaFault(num_storms_);
  if (scenario_.goes_back) PlanGoingBack(num_storms_);
  if (scenario_.coordinator.ends_unconnected) PlanProxyRestart(num_storms_);
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

void Run::PlanFault(Level& level, int storm) {
  world_.After(UpTo(2 * scenario_.fault_pause), [this, &level, storm] {
    if (!is_stormy_ || storm != num_storms_) return;
    ++num_faults_;
    Strike(level, static_cast<Fault>(chance_.Below(static_cast<int>(Fault::kLast))));
    PlanFault(level, storm);
  });
}

void Run::Strike(Level& level, Fault fault) {
  SimulatedCluster& cluster = level.cluster;
  const absl::Duration lease = cluster.config().lease;
  const bool is_of_worker = fault <= Fault::kHangWorker;
  if (is_of_worker && cluster.num_workers == 0) return;
  switch (fault) {
    case Fault::kKillWorker: {
      SimulatedWorker& worker = AnyWorker(cluster);
      if (!worker.process().is_alive()) return;
      worker.Crash(/*with_machine=*/chance_.OneIn(2));
      return StartAgain(worker, UpTo(2 * lease));
    }
    case Fault::kFreezeWorker: {
      SimulatedWorker& worker = AnyWorker(cluster);
      if (!worker.process().is_alive() || worker.process().is_frozen()) return;
      const absl::Duration time = UpTo(3 * lease);
      world_.Tell(worker.process().name(), " freezes for ", absl::FormatDuration(time));
      worker.process().Freeze();
      Disturb(cluster, worker.process(), time);
      world_.After(time, [&worker] {
        if (worker.process().is_frozen()) worker.process().Thaw();
      });
      return;
    }
    case Fault::kStopWorker: {
      SimulatedWorker& worker = AnyWorker(cluster);
      if (worker.process().is_alive()) worker.RequestStop();
      return;
    }
    case Fault::kHangWorker: {
      SimulatedWorker& worker = AnyWorker(cluster);
      if (worker.process().is_alive()) worker.Hang(UpTo(3 * cluster.config().round_timeout));
      return;
    }
    case Fault::kKillServer: {
      // Without checkpoints, every server that ends loses its state, so this fault is rare.
      if (cluster.config().checkpoint_dir.empty() && !chance_.OneIn(8)) return;
      SimulatedServer& server = chance_.OneIn(2) ? *cluster.servers[0] : AnyServer(cluster);
      if (server.process().is_alive())
        KillServer(cluster, server, /*with_machine=*/chance_.OneIn(2));
      return;
    }
    case Fault::kFreezeServer: {
      SimulatedServer& server = AnyServer(cluster);
      if (!server.process().is_alive() || server.process().is_frozen()) return;
      const absl::Duration time = UpTo(chance_.OneIn(4) ? absl::Seconds(40) : 2 * lease);
      world_.Tell(server.process().name(), " freezes for ", absl::FormatDuration(time));
      server.process().Freeze();
      for (const auto& worker : cluster.workers) Disturb(cluster, worker->process(), time);
      world_.After(time, [&server] {
        if (server.process().is_frozen()) server.process().Thaw();
      });
      return;
    }
    case Fault::kStopServers:
      if (cluster.config().checkpoint_dir.empty() && !chance_.OneIn(8)) return;
      return StopServers(cluster);
    case Fault::kStopJob:
      if (cluster.config().checkpoint_dir.empty() || !chance_.OneIn(4)) return;
      return StopJob(level);
    case Fault::kCut:
    case Fault::kSilence:
    case Fault::kSlowDown:
      return FaultOnPath(cluster);
    case Fault::kDamage:
      return DamagePushes(cluster);
    case Fault::kFillDisk:
      world_.Tell("the disk is full");
      return cluster.disk_faults.Fill(UpTo(absl::Seconds(5)));
    case Fault::kFailDisk:
      world_.Tell("the disk fails now and then");
      return cluster.disk_faults.FailNowAndThen(UpTo(absl::Seconds(3)));
    case Fault::kFailFolder:
      return FailFolder(cluster, UpTo(absl::Seconds(chance_.OneIn(2) ? 20 : 3)));
    case Fault::kCrashOnDisk: {
      SimulatedServer& server = AnyServer(cluster);
      const auto crash = [this, &cluster, &server] {
        if (server.process().is_alive()) KillServer(cluster, server, /*with_machine=*/true);
      };
      return cluster.disk_faults.LosePower(
          chance_.Below(60), [&server] { return server.process().is_alive(); }, crash);
    }
    case Fault::kFailReads:
      if (chance_.OneIn(2)) {
        world_.Tell("the disk fails to read once");
        return cluster.disk_faults.FailOneRead(chance_.Below(20));
      }
      world_.Tell("the disk cannot be read");
      return cluster.disk_faults.FailReads(UpTo(absl::Seconds(3)));
    case Fault::kDamageCheckpoint:
      return DamageCheckpoint(cluster);
    case Fault::kCheckpoint: {
      coordinator::Coordinator* const coordinator = cluster.coordinator();
      if (coordinator == nullptr || cluster.servers[0]->process().is_frozen()) return;
      cluster.servers[0]->RequestCheckpoint();
      return;
    }
    case Fault::kPause: {
      if (cluster.coordinator() == nullptr || cluster.servers[0]->process().is_frozen()) return;
      const absl::Duration duration = UpTo(absl::Seconds(4));
      world_.Tell("an operator pauses the job for ", absl::FormatDuration(duration));
      level.pauses_until = world_.Now() + duration;
      cluster.servers[0]->Pause();
      return;
    }
    case Fault::kTakeOver:
      return HangDisk(cluster);
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
  SimulatedCluster& cluster = root();
  SimulatedReplica& replica = *cluster.replica;
  switch (fault) {
    case ReplicaFault::kCrash:
      return replica.Crash(/*with_machine=*/chance_.OneIn(2), UpTo(absl::Seconds(5)));
    case ReplicaFault::kCut:
      return replica.Cut(UpTo(absl::Seconds(5)));
    case ReplicaFault::kCutOnce:
      return replica.CutOnce(chance_.Below(60));
    case ReplicaFault::kCrashOnDisk:
      return replica.CrashOnDisk(chance_.Below(60));
    case ReplicaFault::kFillDisk:
      return replica.FillDisk(UpTo(absl::Seconds(5)));
    case ReplicaFault::kLoseDisk: {
      // The replica may lose its disk only while all servers are there, because they have
      // everything.
      const bool are_up =
          std::all_of(cluster.servers.begin(), cluster.servers.end(),
                      [](const auto& server) { return server->process().is_alive(); });
      if (are_up) replica.LoseDisk(static_cast<int>(cluster.servers.size()));
      return;
    }
    case ReplicaFault::kLoseServersDisk: {
      const int shard = static_cast<int>(chance_.Below(cluster.servers.size()));
      SimulatedServer& server = *cluster.servers[shard];
      if (!server.process().is_alive() || !replica.HasWhole(shard)) return;
      server.Crash(/*with_machine=*/false);
      cluster.disk_faults.SetOpen(true);
      server.LoseDisk(scenario_.replica_has_checkpoints && chance_.OneIn(2)
                          ? SimulatedServer::Loss::kCheckpoints
                          : SimulatedServer::Loss::kAll);
      cluster.disk_faults.SetOpen(false);
      if (chance_.OneIn(2)) replica.Crash(/*with_machine=*/true, UpTo(absl::Seconds(5)));
      return StartAgain(cluster, server, UpTo(absl::Seconds(10)));
    }
    case ReplicaFault::kLast:
      return;
  }
}

void Run::PlanProxyRestart(int storm) {
  const absl::Duration pause = proxy_chance_.Between(absl::Milliseconds(1), absl::Seconds(20));
  world_.After(pause, [this, storm] {
    if (!is_stormy_ || storm != num_storms_) return;
    ++num_faults_;
    RestartProxy();
    PlanProxyRestart(storm);
  });
}

void Run::RestartProxy() {
  SimulatedCluster& cluster = root();
  if (cluster.num_workers == 0) return;
  std::vector<SimulatedWorker*> behind;
  absl::Duration gone;
  if (proxy_chance_.OneIn(3)) {
    for (int i = 0; i < cluster.num_workers; ++i) behind.push_back(cluster.workers[i].get());
    gone = proxy_chance_.Between(absl::Milliseconds(1), absl::Seconds(5));
  } else {
    behind.push_back(cluster.workers[proxy_chance_.Below(cluster.num_workers)].get());
  }
  const auto num_held = std::count_if(behind.begin(), behind.end(),
                                      [](SimulatedWorker* worker) { return worker->is_held(); });
  world_.Tell("a proxy of ", behind.size(), " workers restarts, and is gone for ",
              absl::FormatDuration(gone));
  for (SimulatedWorker* const worker : behind) {
    if (!worker->process().is_alive()) continue;
    worker->OnProxyRestart(/*is_alone=*/num_held < 2);
    if (num_held < 2) Disturb(cluster, worker->process(), gone);
    for (const auto& server : cluster.servers) {
      network_.RestartProxy(worker->process(), server->process(), gone);
    }
  }
}

void Run::PlanGoingBack(int storm) {
  world_.After(UpTo(2 * scenario_.fault_pause), [this, storm] {
    if (!is_stormy_ || storm != num_storms_) return;
    ++num_faults_;
    CopyOrGoBack();
    PlanGoingBack(storm);
  });
}

std::vector<std::string> Run::JournalsOf(int shard) {
  std::vector<std::string> folders = {root().servers[shard]->log_folder()};
  if (shard == 0) folders.push_back(SimulatedServer::coordinator_folder());
  return folders;
}

uint64_t Run::LastRecord(const std::string& folder) {
  const auto end = journal::ReadJournal(
      root().disk, folder, [](const journal::JournalRecord&) { return absl::OkStatus(); });
  return end.ok() ? end->last_sequence : 0;
}

uint64_t Run::HighestFollowed(int except_shard) {
  uint64_t highest = 0;
  for (int shard = 0; shard < static_cast<int>(root().servers.size()); ++shard) {
    if (shard == except_shard) continue;
    const auto take = [&](const journal::JournalRecord& record) {
      const auto json = ParseJson(record.text);
      const absl::StatusOr<uint64_t> followed =
          json.ok() ? GetUint64(*json, "follows_record") : json.status();
      if (followed.ok()) highest = std::max(highest, *followed);
      return absl::OkStatus();
    };
    journal::ReadJournal(root().disk, root().servers[shard]->log_folder(), take)
        .status()
        .IgnoreError();
  }
  return highest;
}

uint64_t Run::RecordOfNewestCheckpoint(uint64_t journal_id) {
  const coordinator::CoordinatorConfig& config = root().config();
  Round newest(-1);
  uint64_t record = 0;
  for (const std::string& folder : {config.checkpoint_dir, config.fallback_dir}) {
    const auto entries = checkpoints::ListWholeCheckpoints(root().disk, folder);
    if (folder.empty() || !entries.ok()) continue;
    for (const checkpoints::CheckpointEntry& entry : *entries) {
      const absl::StatusOr<checkpoints::Manifest> manifest =
          checkpoints::ReadManifest(root().disk, entry.path);
      if (!manifest.ok() || manifest->round <= newest) continue;
      newest = manifest->round;
      const checkpoints::JournalManifest& journal = manifest->journal;
      record = journal.journal_id == journal_id && !journal.is_complete ? journal.record : 0;
    }
  }
  return record;
}

uint64_t Run::CoordinatorJournalId() {
  const auto contents =
      host::CoordinatorJournal::Read(root().disk, SimulatedServer::coordinator_folder());
  uint64_t journal_id = 0;
  if (contents.ok() && !contents->records.empty()) {
    coordinator::CoordinatorMemoryFromRecords(contents->records, world_.Now(), &journal_id)
        .status()
        .IgnoreError();
  }
  return journal_id;
}

uint64_t Run::KnownEndOf(int shard) {
  const auto contents =
      host::CoordinatorJournal::Read(root().disk, SimulatedServer::coordinator_folder());
  if (!contents.ok() || contents->records.empty()) return 0;
  const auto memory = coordinator::CoordinatorMemoryFromRecords(contents->records, world_.Now());
  if (!memory.ok() || !memory->has_value()) return 0;
  return (*memory)->shards.servers[shard].journal_end;
}

void Run::CopyOrGoBack() {
  SimulatedCluster& cluster = root();
  const int shard = static_cast<int>(chance_.Below(cluster.servers.size()));
  const bool has_gone_back = newer_.has_value() || !cluster.context.gone_back.empty();
  if (has_gone_back || !cluster.replaced.empty()) return;
  if (!cluster.servers[shard]->process().is_alive()) return;
  cluster.disk_faults.SetOpen(true);
  if (const auto older = older_.find(shard); older != older_.end() && chance_.OneIn(2)) {
    GoBack(shard, older->second);
    older_.erase(shard);
  } else {
    older_[shard] = FolderCopy(cluster.disk, JournalsOf(shard));
  }
  cluster.disk_faults.SetOpen(false);
}

bool Run::DamageCoordinatorJournal() {
  SimulatedFileSystem& disk = root().disk;
  const std::string folder = SimulatedServer::coordinator_folder();
  const absl::StatusOr<std::vector<uint64_t>> segments = journal::ListJournalSegments(disk, folder);
  LODESTAR_CHECK(segments.ok()) << segments.status();
  if (segments->empty()) return false;
  const std::string file =
      journal::JournalSegmentPath(folder, (*segments)[chance_.Below(segments->size())]);
  if (disk.ReadWholeFile(file, int64_t{1} << 30)->empty()) return false;
  // A full disk refuses the write.
  if (!Damage(disk, folder, file).ok()) return false;
  return absl::IsDataLoss(host::CoordinatorJournal::Read(disk, folder).status());
}

void Run::GoBack(int shard, const FolderCopy& older) {
  SimulatedCluster& cluster = root();
  SimulatedServer& server = *cluster.servers[shard];
  server.Crash(/*with_machine=*/false);
  cluster.disk_faults.SetOpen(true);
  const FolderCopy newer(cluster.disk, JournalsOf(shard));
  const uint64_t known_end = KnownEndOf(shard);
  const bool is_damaged = shard == 0 && chance_.OneIn(2) && DamageCoordinatorJournal();
  if (!is_damaged) older.PutBack(cluster.disk);
  const uint64_t known_of_coordinator = std::max(HighestFollowed(/*except_shard=*/0),
                                                 RecordOfNewestCheckpoint(CoordinatorJournalId()));
  const bool is_noticed =
      shard == 0 ? known_of_coordinator >
                       (is_damaged ? 0 : LastRecord(SimulatedServer::coordinator_folder()))
                 : known_end > LastRecord(server.log_folder());
  if (!is_noticed) {
    // No other record shows the loss, so nothing could notice it. The newer state is restored.
    newer.PutBack(cluster.disk);
  } else {
    world_.Tell(is_damaged ? "the journal of " : "the disk of ", server.process().name(),
                is_damaged ? " is damaged" : " goes back to an older state");
    cluster.context.gone_back.insert(shard);
    cluster.context.begun_anew_as = 0;
    cluster.context.coordinator.journal.accepted_loss.reset();
    if (shard == 0) {
      cluster.context.has_coordinator_gone_back = true;
      newer_ = newer;
      mends_journal_at_ = absl::InfiniteFuture();
    }
  }
  StartAgain(cluster, server, UpTo(absl::Seconds(10)));
}

void Run::LookForLostJournal() {
  if (!newer_.has_value()) return;
  // All have begun anew, so the journal is not needed any more.
  if (!root().context.has_coordinator_gone_back) return newer_.reset();
  coordinator::Coordinator* const coordinator = root().coordinator();
  SimulatedServer& server = *root().servers[0];
  if (coordinator == nullptr || server.process().is_frozen()) return;
  const std::optional<shards::JournalLoss>& loss = coordinator->journal_loss();
  if (!loss.has_value()) return;
  if (mends_journal_at_ == absl::InfiniteFuture()) {
    mends_journal_at_ = world_.Now() + UpTo(absl::Seconds(5));
  }
  if (world_.Now() < mends_journal_at_) return;
  mends_journal_at_ = absl::InfiniteFuture();
  if (chance_.OneIn(2)) return PutJournalBack();
  world_.Tell("an operator accepts the loss up to round ", loss->round.value());
  root().context.coordinator.journal.accepted_loss = loss->round;
  server.Crash(/*with_machine=*/false);
  StartAgain(root(), server, UpTo(absl::Seconds(2)));
}

void Run::PutJournalBack() {
  SimulatedCluster& cluster = root();
  SimulatedServer& server = *cluster.servers[0];
  world_.Tell("the journal of ", server.process().name(), " is brought back");
  if (server.process().is_alive()) server.Crash(/*with_machine=*/false);
  cluster.disk_faults.SetOpen(true);
  newer_->PutBack(cluster.disk);
  cluster.disk_faults.SetOpen(false);
  newer_.reset();
  cluster.context.gone_back.erase(0);
  cluster.context.has_coordinator_gone_back = false;
  StartAgain(cluster, server, UpTo(absl::Seconds(2)));
}

void Run::FaultOnPath(SimulatedCluster& cluster) {
  const std::vector<std::unique_ptr<SimulatedServer>>& servers = cluster.servers;
  const absl::Duration lease = cluster.config().lease;
  SimulatedServer& server = AnyServer(cluster);
  const int64_t index = chance_.Below(cluster.num_workers + NumSitesOf(cluster));
  Process* other = index < cluster.num_workers
                       ? &cluster.workers[index]->process()
                       : &levels_[1 + index - cluster.num_workers]->cluster.servers[0]->process();
  Lane lane = chance_.OneIn(2) ? Lane::kBulk : Lane::kControl;
  if (servers.size() > 1 && chance_.OneIn(3)) {
    other = &servers[0]->process();
    lane = Lane::kControl;
  }
  if (other == &server.process()) return;
  const bool between_servers = other == &servers[0]->process();
  const absl::Duration time = UpTo(chance_.OneIn(4) ? absl::Seconds(40) : 2 * lease);
  Disturb(cluster, *other, time);
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

void Run::DamagePushes(SimulatedCluster& cluster) {
  const int64_t index = chance_.Below(cluster.num_workers + NumSitesOf(cluster));
  const absl::Duration time = UpTo(absl::Seconds(1));
  if (index >= cluster.num_workers) {
    SimulatedCluster& site = levels_[1 + index - cluster.num_workers]->cluster;
    world_.Tell("pushes of ", site.servers[0]->process().name(), " are damaged for ",
                absl::FormatDuration(time));
    return site.uplink->DamagePushes(time);
  }
  SimulatedWorker& worker = *cluster.workers[index];
  world_.Tell("pushes of ", worker.process().name(), " are damaged for ",
              absl::FormatDuration(time));
  worker.DamagePushes(time);
}

void Run::KillServer(SimulatedCluster& cluster, SimulatedServer& server, bool with_machine) {
  // The records that show that a disk has gone back are not always synced, so the machine must keep
  // its power then.
  server.Crash(with_machine && cluster.context.gone_back.empty());
  StartAgain(cluster, server, UpTo(absl::Seconds(10)));
}

void Run::HangDisk(SimulatedCluster& cluster) {
  if (!cluster.context.gone_back.empty()) return;
  const int shard = static_cast<int>(chance_.Below(cluster.servers.size()));
  SimulatedServer& server = *cluster.servers[shard];
  if (!cluster.scenario.journals || !server.process().is_alive() || server.has_hanging_disk()) {
    return;
  }
  server.HangDisk();
  // Nothing depends on how long the next server waits before it takes over.
  world_.After(UpTo(storage::FolderLock::kPatience),
               [this, &cluster, shard, &server, life = server.process().life()] {
                 const bool is_same = cluster.servers[shard].get() == &server &&
                                      server.process().life() == life && server.has_hanging_disk();
                 if (is_same) TakeOver(cluster, shard);
               });
}

void Run::TakeOver(SimulatedCluster& cluster, int shard) {
  SimulatedServer* const old = cluster.servers[shard].get();
  cluster.audit.OnServerEnded();
  cluster.replaced.push_back(std::move(cluster.servers[shard]));
  cluster.context.replaced.push_back(old);
  cluster.servers[shard] = std::make_unique<SimulatedServer>(
      &cluster.context, shard,
      absl::StrCat("server ", shard, " (", cluster.replaced.size() + 1, ")"));
  cluster.context.servers[shard] = cluster.servers[shard].get();
  cluster.servers[shard]->Start();
  world_.After(UpTo(absl::Seconds(3)), [old] { old->ResumeDisk(); });
}

void Run::StopServers(SimulatedCluster& cluster) {
  if (!chance_.OneIn(3)) return AnyServer(cluster).RequestStop();
  for (auto& server : cluster.servers) {
    world_.After(UpTo(absl::Milliseconds(chance_.OneIn(2) ? 1 : 500)),
                 [raw = server.get()] { raw->RequestStop(); });
  }
}

void Run::StopJob(Level& level) {
  SimulatedCluster& cluster = level.cluster;
  if (is_calm_ || level.watch.IsJobStopped() || cluster.coordinator() == nullptr) return;
  // The job would end without what the lost journal has.
  if (cluster.coordinator()->journal_loss().has_value()) return;
  world_.Tell("an operator stops the job",
              cluster.is_site() ? absl::StrCat(" of ", cluster.servers[0]->process().name()) : "");
  level.watch.OnJobStopped();
  cluster.servers[0]->StopJob();
}

void Run::FailFolder(SimulatedCluster& cluster, absl::Duration duration) {
  world_.Tell("nothing can be written into the checkpoint folder for ",
              absl::FormatDuration(duration));
  cluster.disk_faults.FailFolder(duration);
}

void Run::StopInOrder() {
  // The server or job may be of any level.
  Level& level = *levels_[levels_.size() == 1 ? 0 : chance_.Below(levels_.size())];
  SimulatedCluster& cluster = level.cluster;
  const coordinator::CoordinatorConfig& config = cluster.config();
  if (is_stormy_ || is_calm_ || config.checkpoint_dir.empty()) return;
  if (num_storms_ > 0 && peace_.settled_since == absl::InfiniteFuture()) return;
  level.must_save = true;
  cluster.audit.SetMustSave(true);
  ++num_faults_;
  chance_.OneIn(3) ? StopJob(level) : StopServers(cluster);
  // If there is time, a failed folder or connection must lose nothing either: another folder or
  // connection takes its place.
  const bool has_time = config.stop_timeout >= absl::Seconds(20);
  if (!config.fallback_dir.empty() && has_time && chance_.OneIn(2)) {
    FailFolder(cluster, absl::Seconds(10));
  }
  if (cluster.servers.size() == 1 || !has_time || !chance_.OneIn(2)) return;
  Process& other = cluster.servers[chance_.Between(1, cluster.servers.size() - 1)]->process();
  world_.After(UpTo(absl::Milliseconds(300)), [this, &cluster, &other] {
    const absl::Duration time = UpTo(absl::Seconds(1));
    world_.Tell("the path of server 0 and ", other.name(), " is cut for ",
                absl::FormatDuration(time));
    network_.Cut(cluster.servers[0]->process(), other, Lane::kControl, time);
  });
}

void Run::DamageCheckpoint(SimulatedCluster& cluster) {
  SimulatedFileSystem& disk = cluster.disk;
  const coordinator::Coordinator* const coordinator = cluster.coordinator();
  // This checkpoint may be the only record that shows that a journal has gone back.
  if (!cluster.context.gone_back.empty()) return;
  // A checkpoint that was verified and is being loaded is trusted, so it must not be damaged.
  if (coordinator == nullptr || coordinator->phase() != coordinator::CoordinatorPhase::kRunning)
    return;
  // On a full disk, a truncation may be undone by a later power cut, so nothing is damaged then.
  const coordinator::CoordinatorConfig& config = cluster.config();
  if (disk.FreeBytes(config.checkpoint_dir).value_or(0) == 0) return;
  cluster.disk_faults.SetOpen(true);
  std::vector<checkpoints::CheckpointEntry> entries;
  for (const std::string& folder : {config.checkpoint_dir, config.fallback_dir}) {
    if (folder.empty()) continue;
    auto some = checkpoints::ListWholeCheckpoints(disk, folder);
    if (some.ok()) entries.insert(entries.end(), some->begin(), some->end());
  }
  cluster.disk_faults.SetOpen(false);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const checkpoints::CheckpointEntry& a,
                      const checkpoints::CheckpointEntry& b) { return a.round > b.round; });
  if (entries.size() < 2) return;
  const checkpoints::CheckpointEntry& newest = entries.front();
  cluster.disk_faults.SetOpen(true);
  const auto other = std::find_if(entries.begin() + 1, entries.end(),
                                  [&disk](const checkpoints::CheckpointEntry& entry) {
                                    return checkpoints::VerifyCheckpoint(disk, entry.path).ok();
                                  });
  cluster.disk_faults.SetOpen(false);
  if (cluster.audit.IsDamaged(newest.path) || other == entries.end()) return;
  const auto names = disk.List(newest.path);
  if (!names.ok() || names->empty()) return;
  const std::string file = absl::StrCat(newest.path, "/", (*names)[chance_.Below(names->size())]);
  cluster.disk_faults.SetOpen(true);
  const absl::Status damaged = Damage(disk, newest.path, file);
  // Some bits of a file do not matter.
  const bool is_damaged = !checkpoints::VerifyCheckpoint(disk, newest.path).ok();
  cluster.disk_faults.SetOpen(false);
  world_.Tell(file, is_damaged ? " is damaged " : " has lost nothing ", damaged.message());
  if (!is_damaged) return;
  cluster.audit.OnDamaged(newest.path, other->round, cluster.scenario.replica_has_checkpoints);
  // Without a restart, the damage shows when the checkpoint is needed later.
  if (!chance_.OneIn(2)) return;
  SimulatedServer& server = AnyServer(cluster);
  if (server.process().is_alive()) KillServer(cluster, server, /*with_machine=*/false);
}

// Flips a bit, removes the end of the file, or removes the file.
absl::Status Run::Damage(SimulatedFileSystem& disk, const std::string& directory,
                         const std::string& file) {
  ASSIGN_OR_RETURN(std::string bytes, disk.ReadWholeFile(file, int64_t{1} << 30));
  const int64_t place = chance_.Below(static_cast<int64_t>(bytes.size()));
  const int64_t kind = chance_.Below(4);
  if (kind == 0) {
    RETURN_IF_ERROR(disk.RemoveAll(file));
    return disk.SyncDirectory(directory);
  }
  if (kind == 1) {
    bytes.resize(place);
  } else {
    bytes[place] = static_cast<char>(bytes[place] ^ 1 << chance_.Below(8));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<storage::WritableFile> out,
                   disk.Create(file, storage::FileSystem::IfExists::kTruncate));
  RETURN_IF_ERROR(out->Append(bytes));
  RETURN_IF_ERROR(out->Sync());
  return out->Close();
}

void Run::StartAgain(SimulatedWorker& worker, absl::Duration pause) {
  world_.After(pause, [&worker] {
    if (!worker.process().is_alive()) worker.Start();
  });
}

void Run::StartAgain(SimulatedCluster& cluster, SimulatedServer& server, absl::Duration pause) {
  world_.After(pause, [this, &cluster, &server, life = server.process().life()] {
    starting_.erase({&server, life});
    const std::vector<SimulatedServer*>& replaced = cluster.context.replaced;
    const bool is_replaced = std::find(replaced.begin(), replaced.end(), &server) != replaced.end();
    // Starts the server, unless it was replaced or another part of the run has started it.
    if (!is_replaced && server.process().life() == life && !server.process().is_alive()) {
      server.Start();
    }
  });
}

bool Run::IsOver() {
  const SimulatedServer& coordinator = *root().servers[0];
  if (!coordinator.completed_rounds().has_value()) return false;
  if (!is_calm_) return true;
  if (!has_ended_) CheckEnd();
  // The other processes must learn of the end, too.
  return std::all_of(levels_.begin(), levels_.end(), [](const auto& level) {
    const SimulatedCluster& cluster = level->cluster;
    if (cluster.is_site() && !cluster.uplink->worker().has_exited()) return true;
    return std::all_of(cluster.servers.begin(), cluster.servers.end(),
                       [](const auto& server) { return server->has_exited(); });
  });
}

void Run::CheckEnd() {
  has_ended_ = true;
  ended_at_ = world_.Now();
  levels_[0]->watch.BeginCalm();
  Audit& audit = root().audit;
  const int64_t total = *root().servers[0]->completed_rounds();
  if (!root().config().checkpoint_dir.empty() && audit.published() != Round(total)) {
    audit.Fail("the job is over, and the newest checkpoint is of round ", audit.published().value(),
               " of ", total);
  }
}

void Run::CheckSitesEnd() {
  if (world_.Now() - ended_at_ < kLongestFarewell) return;
  for (const auto& level : levels_) {
    SimulatedCluster& cluster = level->cluster;
    if (!cluster.is_site() || cluster.AnyHangs() || cluster.servers[0]->has_exited()) continue;
    // If the uplink was away, it still looks for servers that are gone.
    if (!cluster.uplink->worker().has_exited()) continue;
    cluster.audit.Fail("the job upstream is over, and ", cluster.servers[0]->process().name(),
                       " has not ended after ", absl::FormatDuration(kLongestFarewell));
  }
}

// Does what a supervisor and an operator do with processes that have exited, and checks their exit
// statuses.
void Run::Supervise() {
  world_.After(ClusterWatch::kInterval, [this] { Supervise(); });
  for (auto& level : levels_) {
    SimulatedCluster& cluster = level->cluster;
    for (auto& server : cluster.servers) {
      if (server->has_exited()) OnServerExit(cluster, *server);
    }
    for (auto& worker : cluster.workers) {
      if (!worker->process().is_alive() && worker->has_exited()) OnWorkerExit(*level, *worker);
    }
    // Ends the pause, also if the server has restarted from a checkpoint of the pause.
    const bool may_order =
        cluster.coordinator() != nullptr && !cluster.servers[0]->process().is_frozen();
    if (may_order && world_.Now() >= level->pauses_until) cluster.servers[0]->Resume();
  }
  // The last quarter of the job is done in the calm.
  const Audit& audit = root().audit;
  if (!is_calm_ && !scenario_.is_stormy_to_the_end &&
      audit.next_round() + audit.rounds_since_restore() >= Round(options_.num_rounds * 3 / 4)) {
    BeginCalm();
  }
  LookForLostJournal();
  LookWhetherSettled();
  for (auto& level : levels_) {
    level->watch.Look(peace_);
    Audit& own = level->cluster.audit;
    if (own.times_gone_back() > own.num_server_ends()) {
      own.Fail("rounds were gone back ", own.times_gone_back(), " times, and servers have ended ",
               own.num_server_ends(), " times");
    }
  }
  if (is_calm_) CheckProgress();
  if (has_ended_) CheckSitesEnd();
}

void Run::OnServerExit(SimulatedCluster& cluster, SimulatedServer& server) {
  const absl::Status& status = server.exit_status();
  const bool may_exit = status.ok() || absl::IsCancelled(status) || DiskFaults::MayEndJob(status) ||
                        server.could_not_load();
  if (!may_exit) {
    cluster.audit.Fail(server.process().name(), " exits: ", status.ToString());
  }
  // Other servers may hear of the end of the job before the coordinator has ended.
  coordinator::Coordinator* const coordinator = root().coordinator();
  const bool is_end = coordinator != nullptr && coordinator->outcome().has_value();
  if (server.process().is_alive() || has_ended_ || is_end) return;
  if (!starting_.insert({&server, server.process().life()}).second) return;
  StartAgain(cluster, server, UpTo(is_stormy_ ? absl::Seconds(10) : absl::Seconds(1)));
}

void Run::OnWorkerExit(Level& level, SimulatedWorker& worker) {
  SimulatedCluster& cluster = level.cluster;
  const absl::Status& status = worker.exit_status();
  const bool can_take_part = cluster.CanTakePart(worker);
  // A worker may also end because it was told to stop while no server was there to take its round.
  const bool has_served =
      status.ok() || absl::IsDeadlineExceeded(status) || DiskFaults::MayEndJob(status);
  const bool is_refused = !status.ok() && RemedyFor(status) == Remedy::kGiveUp;
  const bool is_content = can_take_part ? has_served || worker.is_refused_for_weight() : is_refused;
  if (!is_content) {
    cluster.audit.Fail(worker.process().name(), " gives up: ", status.ToString());
  }
  if (can_take_part && !has_ended_ && !level.watch.IsJobStopped()) {
    StartAgain(worker, UpTo(absl::Seconds(2)));
  }
}

void Run::LookWhetherSettled() {
  const absl::Time now = world_.Now();
  absl::Duration settling;
  for (const auto& level : levels_) {
    SimulatedCluster& cluster = level->cluster;
    for (const auto& server : cluster.servers) {
      if (!server->process().is_alive()) mended_at_ = now;
    }
    for (const auto& server : cluster.replaced) {
      if (server->process().is_alive()) mended_at_ = now;
    }
    if (cluster.AnyHangs() || cluster.AwaitsMembers()) hung_at_ = now;
    // The levels settle one after the other.
    settling += 2 * cluster.config().lease + kSettlingTime;
  }
  const absl::Time settles = std::max(mended_at_, network_.held_up_until());
  const bool is_unbroken = !is_stormy_ && now - settles > settling;
  peace_.unbroken_since =
      is_unbroken ? std::min(peace_.unbroken_since, now) : absl::InfiniteFuture();
  const bool is_settled = is_unbroken && now - hung_at_ > settling;
  peace_.settled_since = is_settled ? std::min(peace_.settled_since, now) : absl::InfiniteFuture();
  for (const auto& level : levels_) {
    SimulatedCluster& cluster = level->cluster;
    const bool is_any_stopping =
        std::any_of(cluster.servers.begin(), cluster.servers.end(),
                    [](const auto& server) { return server->is_stopping(); });
    // Quiet means that no worker may lose its membership. But a stopping server may drop a worker
    // that delays it. If the job is stopped, a worker that waits to join exits, and its lease ends.
    cluster.audit.SetQuiet(is_settled && !is_any_stopping && !level->watch.IsJobStopped());
    cluster.audit.SetMustSave(!cluster.config().checkpoint_dir.empty() &&
                              (is_settled || level->must_save));
  }
}

void Run::BeginCalm() {
  if (std::exchange(is_calm_, true)) return;
  is_stormy_ = false;
  Mend();
  for (auto& level : levels_) level->watch.BeginCalm();
}

void Run::Mend() {
  mended_at_ = world_.Now();
  world_.Tell(is_calm_ ? "calm" : "a lull");
  network_.Heal();
  for (auto& level : levels_) Mend(*level);
}

void Run::Mend(Level& level) {
  SimulatedCluster& cluster = level.cluster;
  level.pauses_until = absl::InfinitePast();
  if (cluster.replica != nullptr) cluster.replica->Mend();
  cluster.disk_faults.Mend();
  // If an operator has accepted the loss, the journal is not restored.
  if (&cluster == &root() && newer_.has_value() && cluster.context.has_coordinator_gone_back &&
      !cluster.context.coordinator.journal.accepted_loss.has_value()) {
    PutJournalBack();
  }
  for (auto& server : cluster.servers) {
    if (server->process().is_frozen()) server->process().Thaw();
    if (!server->process().is_alive()) StartAgain(cluster, *server, UpTo(absl::Seconds(1)));
    server->ResumeDisk();
  }
  for (auto& server : cluster.replaced) {
    if (server->process().is_frozen()) server->process().Thaw();
    server->ResumeDisk();
  }
  for (auto& worker : cluster.workers) {
    if (worker->process().is_frozen()) worker->process().Thaw();
    if (!worker->process().is_alive()) StartAgain(*worker, UpTo(absl::Seconds(1)));
  }
}

void Run::CheckProgress() {
  const bool anybody_hangs = std::any_of(
      levels_.begin(), levels_.end(), [](const auto& level) { return level->cluster.AnyHangs(); });
  absl::Duration slack;  // extra time for a site's rounds, beside their own leases
  for (auto& level : levels_) {
    // After the job's end, sites get no more rounds.
    if (level->cluster.is_site() && has_ended_) continue;
    level->watch.CheckProgress(anybody_hangs, slack);
    slack = kSlackOfSites + 6 * root().config().lease;
  }
}

}  // namespace

SimulationResult Simulate(const SimulationOptions& options) { return Run(options).Go(); }

}  // namespace lodestar::simulation
