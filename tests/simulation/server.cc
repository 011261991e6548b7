// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/server.h"

#include <algorithm>
#include <random>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/runtime/check.h"
#include "common/runtime/file_io.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_lock.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/coordinator/coordinator_memory_json.h"
#include "server/durability/journal/journal_reader.h"
#include "server/durability/journal/journal_segments.h"
#include "server/durability/replica/replication.h"
#include "server/rpc/checkpoint_calls.h"
#include "server/rpc/shard_convert.h"

namespace lodestar::simulation {
namespace {

// These times have the values of server/coordinator_role.cc, server.cc, rpc/cluster_rpc.cc and
// rpc/shard_agent.cc. Leases here last seconds, too.
constexpr absl::Duration kStrandTick = absl::Milliseconds(100);
// Time after a disturbance of its path in which a worker may still be unable to open another
// connection.
constexpr absl::Duration kTimeToDial = absl::Seconds(2);
constexpr absl::Duration kShardTick = absl::Seconds(1);
constexpr absl::Duration kStatsInterval = absl::Seconds(1);
constexpr absl::Duration kRegisterHold = absl::Seconds(3);
constexpr absl::Duration kGrantHold = absl::Seconds(5);
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(2);
constexpr absl::Duration kReportDeadline = absl::Seconds(5);
constexpr int kMaxUnanswered = 5;

constexpr absl::Duration kLongestTask = absl::Microseconds(200);
constexpr absl::Duration kLongestWrite = absl::Milliseconds(20);
constexpr absl::Duration kLongestSync = absl::Milliseconds(2);
constexpr absl::Duration kJournalPatience = absl::Seconds(2);
constexpr absl::Duration kRestartPause = absl::Seconds(1);
constexpr absl::Duration kExitTime = absl::Milliseconds(50);
// One of this many restarted servers has too little memory to load.
constexpr int kRestartsPerLack = 2;
constexpr absl::Duration kLongestOblivion = storage::FolderLock::kBeatInterval;

// The journal has a folder of its own, so that it can be written when the checkpoint folder cannot.
constexpr char kJournalRoot[] = "/journal";
constexpr char kJournalFolder[] = "/journal/coordinator";
// Segments are short, so that the journal often changes from one to the next.
constexpr int64_t kJournalSegmentBytes = 64 << 10;

absl::Status StoppingStatus() {
  return absl::UnavailableError("the server is stopping; connect again when it is back");
}

// Returns true if the report comes before its round ends. The round may have continued without it.
bool IsBeforeTheEnd(const std::optional<messages::RoundReport>& report,
                    const coordinator::Coordinator& coordinator, absl::Time now) {
  if (!report.has_value() || report->round >= coordinator.committed_round()) {
    return report.has_value();
  }
  // Evaluations of a site are rounds for which the servers wait for nothing.
  if (report->round + 1 < coordinator.committed_round()) return false;
  const coordinator::ClusterSnapshot snapshot = coordinator.Snapshot(now);
  return snapshot.open_round.has_value() && snapshot.open_round->round == report->round;
}

template <typename Calls>
void ForgetCallsThatAreOver(Calls& calls) {
  if (calls.size() > 32)
    std::erase_if(calls, [](const auto& call) { return call.second.expired(); });
}

}  // namespace

std::string SimulatedServer::coordinator_folder() { return kJournalFolder; }

SimulatedServer* ClusterContext::ServerAt(int shard, const std::string& address) const {
  for (SimulatedServer* const server : replaced) {
    if (server->process().is_alive() && server->address() == address) return server;
  }
  return servers[shard];
}

SimulatedServer::Life::Life(SimulatedServer* server, Process* process)
    : arithmetic(process, kLongestTask, [server] { server->InspectShard(/*all=*/false); }),
      commands(process, kLongestTask),
      writer(process, kLongestWrite),
      keeper_tasks(process, kLongestWrite),
      log_tasks(process, kLongestWrite, [server] { server->InspectShard(/*all=*/false); }),
      journal_writer(process, kLongestSync),
      instance_id(process->world().chance()() | 1) {}

void SimulatedServer::Life::Drain() {
  ProcessExecutor* const executors[] = {&arithmetic,   &commands,  &writer,
                                        &keeper_tasks, &log_tasks, &journal_writer};
  bool has_done_any = true;
  while (has_done_any) {
    has_done_any = false;
    for (ProcessExecutor* executor : executors) has_done_any |= executor->Drain();
  }
}

SimulatedServer::SimulatedServer(ClusterContext* cluster, int shard, std::string name)
    : cluster_(cluster),
      shard_(shard),
      disk_(cluster->disk, &pauses_),
      process_(cluster->world, std::move(name)) {}

SimulatedServer::~SimulatedServer() {
  if (process_.is_alive()) Crash(/*with_machine=*/false);
}

absl::Status SimulatedServer::CheckHeld() const {
  if (!is_replaced()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("the folders are held by ", cluster_->servers[shard_]->process_.name()));
}

// Tests the folders, as a server does before it listens.
absl::Status SimulatedServer::TryFolders() {
  if (shard_ != 0) return absl::OkStatus();
  const coordinator::Coordinator::Config& config = cluster_->coordinator;
  for (const auto& [folder, count] :
       {std::pair(config.checkpoint_dir, cluster_->keep + 1), std::pair(config.fallback_dir, 1)}) {
    if (folder.empty()) continue;
    RETURN_IF_ERROR(
        checkpoint::TryCheckpointFolder(*cluster_->disk, folder, /*checkpoint_bytes=*/0, count)
            .status());
  }
  if (!cluster_->journals) return absl::OkStatus();
  return checkpoint::TryCheckpointFolder(*cluster_->disk, kJournalFolder, /*checkpoint_bytes=*/0,
                                         /*num_checkpoints=*/0)
      .status();
}

absl::Status SimulatedServer::Replicate() {
  SimulatedReplica* const replica = cluster_->replica;
  if (replica == nullptr) return absl::OkStatus();
  replica::ReplicationStart start;
  start.folder = log_folder();
  ASSIGN_OR_RETURN(start.mark, replica::ReadReplicationMark(disk_, start.folder));
  for (const std::string& journal : {start.folder, std::string(kJournalFolder)}) {
    ASSIGN_OR_RETURN(const std::vector<uint64_t> segments,
                     journal::ListJournalSegments(disk_, journal));
    start.has_journal |= !segments.empty() && (journal == start.folder || shard_ == 0);
  }
  start.wants_replica = true;
  start.may_promote = replica->IsKnownToBeEmpty(shard_);
  replica::Replication::Config config;
  ASSIGN_OR_RETURN(config.plan, replica::JudgeStart(start));
  config.shard = shard_;
  config.num_shards = cluster_->coordinator.num_shards;
  config.journal_dir = kJournalRoot;
  config.checkpoint_dir = cluster_->coordinator.checkpoint_dir;
  config.replica = "replica";
  config.server = process_.name();
  config.term = process_.world().chance()() | 1;
  replica::Replication::Deps deps;
  deps.disk = &disk_;
  deps.clock = &process_.world();
  deps.connect = [this, replica, life = process_.life()] {
    return replica->Connect([this, life] {
      return cluster_->is_draining || !process_.is_alive() || process_.life() != life;
    });
  };
  deps.random_id = [this] { return process_.world().chance()() | 1; };
  deps.confirm = [this] { return CheckHeld(); };
  deps.on_change = [this](const absl::Status& state) {
    process_.world().Tell(process_.name(), ": replica: ", state.ToString());
  };
  life_->replication = std::make_unique<replica::Replication>(std::move(config), std::move(deps));
  for (storage::FileSystem** const disk :
       {&life_->log_disk, &life_->shard_disk, &life_->journal_disk, &life_->keeper_disk}) {
    *disk = life_->replication->AddDisk();
  }
  return life_->replication->Connect();
}

absl::Status SimulatedServer::ReadJournal() {
  absl::StatusOr<host::CoordinatorJournal::Contents> contents =
      host::CoordinatorJournal::Read(*life_->journal_disk, kJournalFolder);
  journal_damage_.clear();
  if (absl::IsDataLoss(contents.status()) && cluster_->has_coordinator_gone_back) {
    journal_damage_ = std::string(contents.status().message());
    contents = host::CoordinatorJournal::Contents();
  }
  if (absl::IsDataLoss(contents.status())) {
    cluster_->audit->Fail("the journal is damaged: ", contents.status().message());
  }
  RETURN_IF_ERROR(contents.status());
  memory_.reset();
  found_record_ = {0, contents->end.last_sequence};
  if (!contents->records.empty()) {
    auto memory = coordinator::CoordinatorMemoryFromRecords(
        contents->records, process_.world().Now(), &found_record_.journal_id);
    if (!memory.ok()) {
      cluster_->audit->Fail("the journal is damaged: ", memory.status().message());
      return memory.status();
    }
    memory_ = *std::move(memory);
  }
  journal_end_ = std::move(contents->end);
  return absl::OkStatus();
}

void SimulatedServer::Start() {
  if (const absl::Status tried = TryFolders(); !tried.ok()) return FailToStart(tried);
  process_.Begin();
  cluster_->network->OnBegun(process_);
  Chance& chance = process_.world().chance();
  if (address_.empty() || chance.OneIn(4)) {
    address_ =
        absl::StrCat(absl::StrReplaceAll(process_.name(), {{" ", "-"}, {"(", ""}, {")", ""}}), ":",
                     1 + chance.Below(9999));
  }
  process_.world().Tell(process_.name(), " starts at ", address_);
  exit_.reset();
  could_not_load_ = false;
  completed_rounds_.reset();
  life_ = std::make_unique<Life>(this, &process_);
  for (storage::FileSystem** const disk :
       {&life_->log_disk, &life_->shard_disk, &life_->journal_disk, &life_->keeper_disk}) {
    *disk = &disk_;
  }
  const absl::Status opened = cluster_->journals ? OpenLog() : absl::OkStatus();
  host::ShardHost::Deps deps;
  deps.executor = &life_->arithmetic;
  deps.commands = &life_->commands;
  deps.writer = &life_->writer;
  deps.file_system = life_->shard_disk;
  deps.reports = this;
  deps.instance_id = life_->instance_id;
  deps.log = life_->log.get();
  deps.folders = {.checkpoint_dir = cluster_->coordinator.checkpoint_dir,
                  .fallback_dir = cluster_->coordinator.fallback_dir,
                  .journal_dir = log_folder()};
  deps.are_connections_closed = [this](const messages::WorkerLife& life) {
    return cluster_->connections[life.incarnation].are_bulk_closed;
  };
  deps.read_memory = [this] { return ReadMemory(); };
  life_->host = std::make_unique<host::ShardHost>(shard_, deps);
  absl::StatusOr<bool> has_recovered = false;
  if (opened.ok()) has_recovered = Recover();
  // Counts instead of drawing a random number, because the number of such servers must not depend
  // on other events.
  if (shard_ > 0 && has_recovered.ok() && !*has_recovered && MayLackMemory()) {
    life_->lacks_memory = ++cluster_->num_restarts % kRestartsPerLack == 0;
  }
  absl::Status begun = opened.ok() ? has_recovered.status() : opened;
  if (begun.ok() && shard_ == 0) begun = StartCoordinator();
  if (!begun.ok()) {
    Crash(/*with_machine=*/false);
    return FailToStart(begun);
  }
  if (shard_ == 0) {
    process_.After(kStrandTick, [this] { Tick(); });
  } else {
    life_->pause = kFirstPause;
    Attach();
    process_.After(kStatsInterval, [this] { SendStats(); });
  }
  if (*has_recovered) life_->host->GoOn();
  process_.After(kShardTick, [this] { TickShard(); });
  if (cluster_->uplink == nullptr) return;
  life_->code = std::make_unique<BlockingCode>(&process_);
  life_->site =
      std::make_unique<site::ServedSite>(life_->strand.get(), life_->host.get(),
                                         cluster_->coordinator.stop_timeout, life_->code.get());
  cluster_->uplink->Start(life_->site.get(), life_->code.get(),
                          [this] { InspectShard(/*all=*/true); });
}

void SimulatedServer::FailToStart(const absl::Status& why) {
  if (absl::IsFailedPrecondition(why) || absl::IsInvalidArgument(why)) {
    cluster_->audit->Fail(process_.name(), " does not start: ", why.message());
  }
  process_.world().Tell(process_.name(), " cannot start: ", why.message());
  process_.world().After(kRestartPause, [this, life = process_.life()] {
    if (process_.life() == life && !process_.is_alive()) Start();
  });
}

absl::Status SimulatedServer::OpenLog() {
  RETURN_IF_ERROR(checkpoint::TryCheckpointFolder(*cluster_->disk, log_folder(),
                                                  /*checkpoint_bytes=*/0,
                                                  /*num_checkpoints=*/0)
                      .status());
  RETURN_IF_ERROR(Replicate());
  host::ShardLog::Deps deps;
  deps.file_system = life_->log_disk;
  deps.clock = &process_.world();
  deps.executor = &life_->log_tasks;
  deps.format_assignment = rpc::FormatAssignment;
  deps.parse_assignment = rpc::ParseAssignment;
  deps.confirm = [this, replication = life_->replication.get()] {
    if (replication != nullptr) RETURN_IF_ERROR(replication->state());
    return CheckHeld();
  };
  deps.on_trouble = [this](const absl::Status& status) {
    process_.world().Tell(process_.name(), ": journal: ", status.ToString());
  };
  deps.run_folder = cluster_->coordinator.checkpoint_dir;
  absl::StatusOr<std::unique_ptr<host::ShardLog>> log =
      host::ShardLog::Open(log_folder(), std::move(deps));
  // This disk damages no journal, so the error would be a bug.
  if (absl::IsDataLoss(log.status()) && absl::StrContains(log.status().message(), "journal")) {
    cluster_->audit->Fail(log.status().message());
  }
  RETURN_IF_ERROR(log.status());
  life_->log = *std::move(log);
  return absl::OkStatus();
}

absl::StatusOr<bool> SimulatedServer::Recover() {
  host::ShardHost& host = *life_->host;
  ASSIGN_OR_RETURN(const bool has_recovered, host.Recover());
  if (!has_recovered) return false;
  life_->instance_id = host.instance_id();
  // The server must not continue from a journal that has gone back.
  if (cluster_->gone_back.contains(shard_)) return true;
  life_->audit = cluster_->audit->OnRecovered(
      host.server_incarnation(), shard_, absl::StrCat(process_.name(), " life ", process_.life()),
      **host.shard());
  std::vector<shard::StepRecord> steps;
  const auto replayed = [&](const shard::ShardRecord& record, absl::Span<const std::byte>) {
    if (const auto* step = std::get_if<shard::StepRecord>(&record)) steps.push_back(*step);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(life_->log->Replay(replayed).status());
  for (const shard::StepRecord& step : steps) life_->audit->OnReplayed(step);
  process_.world().Tell(process_.name(), " goes on from its journal, with ", steps.size(),
                        " steps");
  return true;
}

void SimulatedServer::Crash(bool with_machine) {
  World& world = process_.world();
  world.Tell(process_.name(), with_machine ? " loses power" : " ends");
  process_.End();
  cluster_->network->OnEnded(process_, with_machine);
  cluster_->audit->OnServerEnded();
  const std::unique_ptr<Life> life = std::move(life_);
  cluster_->is_draining = true;
  if (life->strand != nullptr) life->strand->Stop();
  life->Drain();
  life->host->Shutdown(absl::UnavailableError("the process has ended"));
  life->Drain();
  if (life->code != nullptr) {
    cluster_->uplink->End();
    life->code->End();
  }
  life->host.reset();
  life->Drain();
  cluster_->is_draining = false;
  if (!with_machine) return;
  std::mt19937_64 chance(world.chance()());
  cluster_->disk->Crash(chance);
}

void SimulatedServer::LoseDisk(Loss loss) {
  process_.world().Tell(process_.name(),
                        loss == Loss::kAll ? " has lost its disk" : " has lost its checkpoints");
  const replica::MirroredFolders& folders = cluster_->replica->folders();
  for (const replica::MirroredPath& folder : folders.OfShard(shard_)) {
    if (loss == Loss::kCheckpoints && folder.folder != replica::MirroredFolder::kCheckpoints)
      continue;
    const std::string path = *folders.Locate(shard_, folder);
    const absl::Status removed = cluster_->disk->RemoveAll(path);
    LODESTAR_CHECK(removed.ok()) << removed;
    const absl::Status synced = cluster_->disk->SyncDirectory(DirectoryOf(path));
    LODESTAR_CHECK(synced.ok()) << synced;
  }
}

void SimulatedServer::HangDisk() {
  process_.world().Tell("the disk of ", process_.name(), " hangs");
  life_->has_hanging_disk = true;
  for (ProcessExecutor* executor :
       {&life_->writer, &life_->keeper_tasks, &life_->log_tasks, &life_->journal_writer}) {
    executor->Hang();
  }
}

void SimulatedServer::ResumeDisk() {
  if (!has_hanging_disk()) return;
  process_.world().Tell("the disk of ", process_.name(), " answers again");
  life_->has_hanging_disk = false;
  for (ProcessExecutor* executor :
       {&life_->writer, &life_->keeper_tasks, &life_->log_tasks, &life_->journal_writer}) {
    executor->Resume();
  }
  if (!is_replaced()) return;
  process_.After(process_.world().chance().Between(absl::ZeroDuration(), kLongestOblivion),
                 [this] { Exit(CheckHeld()); });
}

void SimulatedServer::Exit(const absl::Status& status) {
  if (exit_.has_value()) return;
  exit_ = status;
  process_.world().Tell(process_.name(), " exits: ", status.ToString());
  process_.After(kExitTime, [this] {
    // The crash must not happen inside a callback of an object that it destroys.
    process_.world().After(absl::ZeroDuration(), [this, life = process_.life()] {
      if (process_.is_alive() && process_.life() == life) Crash(/*with_machine=*/false);
    });
  });
}

absl::Status SimulatedServer::StartCoordinator() {
  World& world = process_.world();
  host::CheckpointKeeper::Config keeper;
  keeper.root = cluster_->coordinator.checkpoint_dir;
  keeper.fallback = cluster_->coordinator.fallback_dir;
  keeper.retention = {.keep = cluster_->keep,
                      .every_rounds = cluster_->coordinator.checkpoint_schedule.every_rounds};
  keeper.job = cluster_->coordinator.job;
  keeper.confirm_folder = [this](absl::string_view) { return CheckHeld(); };
  host::CheckpointKeeper::Deps deps;
  deps.file_system = life_->keeper_disk;
  deps.executor = &life_->keeper_tasks;
  deps.reports = this;
  // Later starts get higher numbers.
  deps.new_server_incarnation = [&world] {
    return static_cast<uint64_t>(absl::ToUnixMillis(world.Now()) + 1) << 16 |
           (world.chance()() & 0xffff);
  };
  life_->keeper = std::make_unique<host::CheckpointKeeper>(keeper, deps);
  if (cluster_->journals) RETURN_IF_ERROR(ReadJournal());
  coordinator::Coordinator::Config config = cluster_->coordinator;
  if (cluster_->journals) {
    config.journal.folder = kJournalFolder;
    config.journal.end = found_record_;
    config.journal.damage = journal_damage_;
    config.journal.new_journal_id = world.chance()() | 1;
    ASSIGN_OR_RETURN(config.journal.newest, life_->keeper->Newest());
  }
  auto coordinator = memory_.has_value()
                         ? coordinator::Coordinator::Resume(config, *memory_, world.Now())
                         : coordinator::Coordinator::Create(config, world.Now());
  LODESTAR_CHECK(coordinator.ok()) << coordinator.status();
  life_->coordinator = coordinator->get();
  if (cluster_->journals) {
    ASSIGN_OR_RETURN(life_->journal, host::CoordinatorJournal::Create(
                                         {.folder = kJournalFolder,
                                          .end = std::move(journal_end_),
                                          .defers_writing = true,
                                          .replaces_damaged = !journal_damage_.empty()},
                                         {.file_system = life_->journal_disk,
                                          .clock = &process_.world(),
                                          .executor = &life_->journal_writer,
                                          .confirm = [this] { return CheckHeld(); }},
                                         kJournalSegmentBytes));
    if (!cluster_->has_coordinator_gone_back)
      memory_.has_value() ? cluster_->audit->OnResumed(*memory_) : cluster_->audit->OnBegunAnew();
  }
  life_->strand = std::make_unique<rpc::CoordinatorStrand>(&world, absl::InfiniteDuration());
  life_->strand->Start(
      *std::move(coordinator),
      [this](coordinator::Effect effect, const shards::CoordinatorRecord& follows) {
        if (!cluster_->is_draining) CarryOut(std::move(effect), follows);
      },
      life_->journal.get());
  life_->strand->Run([&](coordinator::Coordinator& own, absl::Time now) {
    const absl::Status attached = own.OnShardAttached(
        0, cluster_->coordinator.num_shards, life_->instance_id, life_->host->server_incarnation(),
        address_, now, life_->host->journal_place());
    LODESTAR_CHECK(attached.ok()) << attached;
  });
  return absl::OkStatus();
}

// A coordinator whose journal is older may only tell shards that the job is over. If the loss was
// accepted, or only a shard's journal is older, the coordinator must not open or save a round
// before all have begun anew.
bool SimulatedServer::GoesOnWithOlderJournal(const shards::ShardCommand& command) const {
  if (cluster_->has_coordinator_gone_back &&
      !cluster_->coordinator.journal.accepted_loss.has_value()) {
    return !std::holds_alternative<shards::StopCommand>(command);
  }
  // While all begin anew, only earlier decisions may still be sent.
  const coordinator::CoordinatorPhase phase = life_->coordinator->phase();
  const bool goes_on = phase == coordinator::CoordinatorPhase::kRunning ||
                       phase == coordinator::CoordinatorPhase::kEvaluating ||
                       phase == coordinator::CoordinatorPhase::kSaving;
  return goes_on && !cluster_->attached_gone_back.empty() &&
         (std::holds_alternative<shards::OpenRoundCommand>(command) ||
          std::holds_alternative<shards::SaveCommand>(command));
}

void SimulatedServer::CarryOut(coordinator::Effect effect,
                               const shards::CoordinatorRecord& follows) {
  if (auto* command = std::get_if<shards::ShardCommand>(&effect)) {
    if (const auto* assign = std::get_if<shards::AssignCommand>(command)) {
      cluster_->begun_anew_as = assign->server_incarnation;
      cluster_->has_coordinator_gone_back = false;
    } else if (GoesOnWithOlderJournal(*command)) {
      cluster_->audit->Fail(process_.name(),
                            " goes on with a journal that has gone back to an older state");
    }
    if (const auto* drop = std::get_if<shards::DropCommand>(command)) CheckMayEnd(*drop);
    cluster_->audit->OnCommand(*command);
    Obey(*command, follows);
    for (auto& [shard, remote] : life_->remotes) Send(remote, *command, follows);
  } else if (auto* repeated = std::get_if<shards::RepeatedCommand>(&effect)) {
    const auto remote = life_->remotes.find(repeated->shard);
    if (repeated->shard == shard_) Obey(repeated->command, follows);
    if (remote != life_->remotes.end()) Send(remote->second, repeated->command, follows);
  } else if (auto* task = std::get_if<coordinator::CheckpointTask>(&effect)) {
    if (auto* record = std::get_if<checkpoints::CheckpointRecord>(task)) {
      record->journal.record = follows.number;
    }
    if (auto* mark = std::get_if<coordinator::MarkTask>(task)) mark->follows = follows;
    cluster_->audit->OnTask(*task);
    life_->keeper->Do(std::move(*task));
  } else {
    cluster_->audit->OnAnnouncement(std::get<coordinator::Announcement>(effect));
  }
}

void SimulatedServer::Tick() {
  process_.After(kStrandTick, [this] { Tick(); });
  life_->strand->Tick();
  if (cluster_->uplink != nullptr) {
    std::string standing = cluster_->uplink->Standing();
    if (standing != life_->told_of_uplink) life_->site->TellUpstream(standing);
    life_->told_of_uplink = std::move(standing);
  }
  const std::optional<absl::Status> outcome = life_->coordinator->outcome();
  if (!outcome.has_value() || exit_.has_value() || life_->strand->awaits_journal()) return;
  const bool awaits_servers =
      life_->strand->Run([](coordinator::Coordinator& coordinator, absl::Time now) {
        return coordinator.AwaitsServers(now);
      });
  if (awaits_servers) return;
  const auto ending = life_->coordinator->Ending();
  if (ending.has_value() && ending->ok()) cluster_->audit->OnStopped("psctl", (*ending)->saved);
  const int64_t total_rounds = life_->coordinator->Snapshot(process_.world().Now()).total_rounds;
  if (outcome->ok() && life_->coordinator->rounds_done() == total_rounds) {
    completed_rounds_ = total_rounds;
  }
  if (life_->leaves_upstream) return;
  LeaveUpstream([this, status = *outcome] { Exit(status); });
}

void SimulatedServer::LeaveUpstream(std::function<void()> then) {
  if (cluster_->uplink == nullptr) return then();
  life_->leaves_upstream = true;
  cluster_->uplink->Leave(std::move(then));
}

coordinator::ClusterSnapshot SimulatedServer::Snapshot() {
  return life_->strand->Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.Snapshot(now);
  });
}

void SimulatedServer::OnProcessEnded(const messages::WorkerLife& life) {
  if (life_ == nullptr || life_->strand == nullptr || life_->coordinator == nullptr) return;
  life_->strand->Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnProcessEnded(life, now);
  });
}

void SimulatedServer::TickShard() {
  if (life_->replication != nullptr) life_->replication->Look().IgnoreError();
  life_->host->Tick();
  InspectShard(/*all=*/true);
  if (shard_ == 0) {
    const shard::ShardStats stats = ReadStats();
    shards::JournalState journal = rpc::JournalOf(stats);
    if (journal.trouble.empty() && life_->journal != nullptr) {
      journal.trouble = std::string(life_->journal->trouble().message());
    }
    life_->strand->Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
      coordinator.OnJournalState(0, journal, now);
      coordinator.OnPushSpace(0, stats.push_space, now);
    });
  }
  process_.After(kShardTick, [this] { TickShard(); });
}

ShardAudit* SimulatedServer::audit() const {
  // The shard may exist before its beginning is written down and before the coordinator is told. It
  // then still has the audit of an older incarnation.
  ShardAudit* const audit = life_->audit;
  const bool is_current =
      audit != nullptr && audit->server_incarnation() == life_->host->server_incarnation();
  return is_current ? audit : nullptr;
}

void SimulatedServer::InspectShard(bool all) {
  if (audit() == nullptr || is_replaced()) return;
  if (const auto shard = life_->host->shard(); shard.ok()) audit()->Inspect(**shard, all);
}

void SimulatedServer::Attach() {
  if (const absl::Status held = CheckHeld(); !held.ok()) {
    return OnAttachmentEnded(absl::UnavailableError(held.message()));
  }
  SimulatedServer* const coordinator = cluster_->servers[0];
  std::shared_ptr<Stream> stream = cluster_->network->Open(
      process_, coordinator->process(), Lane::kControl,
      [this, coordinator, instance_id = life_->instance_id,
       memory_of = life_->host->server_incarnation(),
       journal = life_->host->journal_place()](const std::shared_ptr<Stream>& opened) {
        coordinator->OnAttach(this, instance_id, memory_of, journal, opened);
      });
  life_->attachment = stream;
  life_->order = rpc::CommandOrder();
  life_->num_unanswered = 0;
  stream->OnBroken(Stream::kClient, [this](const absl::Status& status) {
    life_->attachment = nullptr;
    OnAttachmentEnded(status);
  });
}

void SimulatedServer::EndAttachment(const absl::Status& status) {
  std::exchange(life_->attachment, nullptr)->Close(Stream::kClient, status);
  OnAttachmentEnded(status);
}

void SimulatedServer::OnAttachmentEnded(const absl::Status& status) {
  if (exit_.has_value()) return;
  if (life_->connection.ok()) life_->pause = kFirstPause;
  // A server that the coordinator has let go stays so until it is attached again.
  if (absl::IsAborted(status) || !absl::IsAborted(life_->connection)) {
    life_->connection = absl::IsAborted(status) ? status : absl::UnavailableError(status.message());
  }
  process_.world().Tell(process_.name(), " is not attached any more: ", status.message());
  if (RemedyFor(status) == Remedy::kGiveUp) return Exit(status);
  process_.After(life_->pause, [this] { Attach(); });
  life_->pause = std::min(life_->pause * 2, kLongestPause);
}

void SimulatedServer::OnAttach(SimulatedServer* server, uint64_t instance_id, uint64_t memory_of,
                               shards::JournalPlace journal,
                               const std::shared_ptr<Stream>& stream) {
  const int shard = server->shard_;
  std::shared_ptr<Stream> old;
  const absl::Status status = life_->strand->Run(
      [&](coordinator::Coordinator& coordinator, absl::Time now) -> absl::Status {
        const bool goes_on = coordinator.GoesOn(shard, instance_id, memory_of);
        if (is_draining() && !goes_on) return StoppingStatus();
        RETURN_IF_ERROR(coordinator.OnShardAttached(shard, cluster_->coordinator.num_shards,
                                                    instance_id, memory_of, server->address_, now,
                                                    journal));
        old = std::exchange(life_->remotes[shard], Remote{server, instance_id, stream}).stream;
        Send(life_->remotes[shard], std::nullopt);
        if (cluster_->gone_back.contains(shard)) cluster_->attached_gone_back.insert(shard);
        return absl::OkStatus();
      });
  if (old != nullptr) old->Close(Stream::kServer, absl::AbortedError("replaced by a newer one"));
  if (!status.ok()) return stream->Close(Stream::kServer, status);
  stream->OnBroken(Stream::kServer,
                   [this, shard, instance_id, raw = stream.get()](const absl::Status&) {
                     life_->strand->Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
                       const auto remote = life_->remotes.find(shard);
                       if (remote == life_->remotes.end() || remote->second.stream.get() != raw)
                         return;
                       life_->remotes.erase(remote);
                       coordinator.OnShardDisconnected(shard, instance_id, now);
                     });
                   });
}

void SimulatedServer::Send(Remote& remote, const std::optional<shards::ShardCommand>& command,
                           const shards::CoordinatorRecord& follows) {
  SimulatedServer* const server = remote.server;
  std::optional<v1::ShardCommand> wire;
  if (command.has_value()) wire = rpc::ToProto(*command, follows);
  remote.stream->Send(Stream::kServer,
                      [server, wire, number = ++remote.last_number, raw = remote.stream.get()] {
                        if (server->life_->attachment.get() != raw) return;
                        server->life_->connection = absl::OkStatus();
                        server->life_->num_unanswered = 0;
                        const absl::Status taken = server->life_->order.Take(number);
                        if (!taken.ok()) return server->EndAttachment(taken);
                        if (!wire.has_value()) return;
                        const absl::StatusOr<shards::ShardCommand> command = rpc::FromProto(*wire);
                        LODESTAR_CHECK(command.ok()) << command.status();
                        server->Obey(*command, rpc::FromProto(wire->follows()));
                      });
}

void SimulatedServer::Obey(const shards::ShardCommand& command,
                           const shards::CoordinatorRecord& follows) {
  life_->host->Obey(command, follows);
  const auto* stop = std::get_if<shards::StopCommand>(&command);
  if (stop == nullptr || shard_ == 0) return;
  if (stop->instance_id != 0 && stop->instance_id != life_->instance_id) return;
  could_not_load_ = stop->instance_id != 0;
  const absl::Status status = could_not_load_ ? absl::UnavailableError(stop->failure)
                              : stop->failure.empty()
                                  ? absl::OkStatus()
                                  : absl::FailedPreconditionError(stop->failure);
  SimulatedServer* const coordinator = cluster_->servers[0];
  cluster_->network->Call(
      process_, coordinator->process(), Lane::kControl, kReportDeadline,
      [this, coordinator, status, instance_id = life_->instance_id,
       first_segment = life_->host->journal_place().first_segment](const Responder& responder) {
        coordinator->TakeReport(
            shard_, instance_id, first_segment,
            [shard = shard_](coordinator::Coordinator& own, absl::Time now) {
              own.OnShardEvent(shard, shards::ShardExiting{}, now);
            },
            [this, responder, status](const absl::Status&) {
              responder.Reply([this, status] { Exit(status); });
            });
      },
      [this, status](const absl::Status&) { Exit(status); });
}

void SimulatedServer::SendStats() {
  process_.After(kStatsInterval, [this] { SendStats(); });
  if (life_->attachment != nullptr && ++life_->num_unanswered > kMaxUnanswered) {
    EndAttachment(absl::UnavailableError("nothing has come on the stream of commands"));
  }
  if (!life_->connection.ok()) return;
  SimulatedServer* const coordinator = cluster_->servers[0];
  cluster_->network->Call(
      process_, coordinator->process(), Lane::kControl, 2 * kStatsInterval,
      [coordinator, shard = shard_, instance_id = life_->instance_id,
       first_segment = life_->host->journal_place().first_segment,
       stats = ReadStats()](const Responder& responder) {
        coordinator->OnStats(shard, instance_id, first_segment, stats);
        responder.Reply([] {});
      },
      [](const absl::Status&) {});
}

shard::ShardStats SimulatedServer::ReadStats() const {
  shard::ShardStats stats = life_->host->stats();
  if (life_->replication == nullptr) return stats;
  const absl::Status state = life_->replication->state();
  stats.journal_replica = state.ok() ? "has everything" : std::string(state.message());
  if (!state.ok()) stats.journal_trouble = std::string(state.message());
  return stats;
}

void SimulatedServer::OnStats(int shard, uint64_t instance_id, uint64_t first_segment,
                              const shard::ShardStats& stats) {
  if (!CheckAttached(shard, instance_id, first_segment).ok()) return;
  Send(life_->remotes[shard], std::nullopt);
  life_->strand->Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnShardHeard(shard, instance_id, now);
    coordinator.OnJournalState(shard, rpc::JournalOf(stats), now);
    coordinator.OnPushSpace(shard, stats.push_space, now);
  });
}

void SimulatedServer::SendReport(Report report) {
  if (cluster_->is_draining) return;
  if (shard_ == 0 && exit_.has_value()) return;
  life_->reports.push_back(std::move(report));
  if (shard_ == 0) {
    return life_->strand->RunAndTell(
        [&](coordinator::Coordinator& own, absl::Time now) {
          life_->reports.back()(own, now);
          return absl::OkStatus();
        },
        [this](const absl::Status& taken) {
          if (taken.ok()) life_->reports.pop_front();
        });
  }
  if (life_->reports.size() > 1) return;
  life_->report_pause = kFirstPause;
  SendFirstReport();
}

void SimulatedServer::SendFirstReport() {
  SimulatedServer* const coordinator = cluster_->servers[0];
  const auto on_answer = [this](const absl::Status& status) {
    if (status.ok() || RemedyFor(status) == Remedy::kGiveUp) {
      life_->reports.pop_front();
      life_->report_pause = kFirstPause;
      if (!life_->reports.empty()) SendFirstReport();
      return;
    }
    process_.After(life_->report_pause, [this] { SendFirstReport(); });
    life_->report_pause = std::min(life_->report_pause * 2, kLongestPause);
  };
  cluster_->network->Call(
      process_, coordinator->process(), Lane::kControl, kReportDeadline,
      [coordinator, on_answer, shard = shard_, instance_id = life_->instance_id,
       first_segment = life_->host->journal_place().first_segment,
       report = life_->reports.front()](const Responder& responder) {
        coordinator->TakeReport(shard, instance_id, first_segment, report,
                                [responder, on_answer](const absl::Status& status) {
                                  responder.Reply([on_answer, status] { on_answer(status); });
                                });
      },
      on_answer);
}

absl::Status SimulatedServer::CheckAttached(int shard, uint64_t instance_id,
                                            uint64_t first_segment) const {
  const auto remote = life_->remotes.find(shard);
  if (remote != life_->remotes.end() && remote->second.instance_id == instance_id) {
    return life_->strand->Run([&](coordinator::Coordinator& coordinator, absl::Time) {
      return coordinator.CheckNotFollowed(shard, first_segment);
    });
  }
  return absl::AbortedError(absl::StrCat("shard ", shard, " is not attached; attach again"));
}

void SimulatedServer::TakeReport(int shard, uint64_t instance_id, uint64_t first_segment,
                                 const Report& report,
                                 std::function<void(const absl::Status&)> answer) {
  if (absl::Status attached = CheckAttached(shard, instance_id, first_segment); !attached.ok()) {
    return answer(attached);
  }
  life_->strand->RunAndTell(
      [&](coordinator::Coordinator& coordinator, absl::Time now) {
        report(coordinator, now);
        return absl::OkStatus();
      },
      std::move(answer));
}

void SimulatedServer::RequestStop() {
  process_.Take(process_.life(), [this] {
    if (is_draining() || life_->leaves_upstream) return;
    process_.world().Tell(process_.name(), " is told to stop");
    LeaveUpstream([this] { SaveBeforeStop(); });
  });
}

void SimulatedServer::SaveBeforeStop() {
  const absl::Time now = process_.world().Now();
  const absl::Duration patience = cluster_->coordinator.stop_timeout;
  life_->stop_by = now + patience;
  if (shard_ == 0) {
    rpc::TakeLastCheckpoint(*life_->strand, /*asker=*/0, coordinator::ReasonOfStop(0), patience,
                            [this](const absl::StatusOr<checkpoints::PublishedCheckpoint>& saved) {
                              OnLastSave(saved);
                            });
    // If the disk does not take the records that an answer depends on, no answer comes.
    process_.After(patience + kJournalPatience, [this] {
      OnLastSave(absl::DeadlineExceededError("the journal was not written in time"));
    });
  } else {
    life_->last_save.emplace(patience, now);
    CallForLastSave();
  }
}

// Does what ShardAgent::SaveBeforeStop() does.
void SimulatedServer::CallForLastSave() {
  const absl::Time now = process_.world().Now();
  const uint64_t server_incarnation = life_->host->server_incarnation();
  if (!life_->connection.ok()) {
    return GoOnWithLastSave(
        life_->last_save->OnDisconnected(life_->connection, server_incarnation, now));
  }
  const rpc::LastSaveCalls::Call call = life_->last_save->Next(server_incarnation, now);
  const auto on_answer = [this](const absl::StatusOr<checkpoints::PublishedCheckpoint>& answer) {
    GoOnWithLastSave(life_->last_save->OnAnswer(answer, life_->host->server_incarnation(),
                                                process_.world().Now()));
  };
  SimulatedServer* const coordinator = cluster_->servers[0];
  cluster_->network->Call(
      process_, coordinator->process(), Lane::kControl, call.deadline,
      [on_answer, coordinator, call, shard = shard_, instance_id = life_->instance_id,
       first_segment = life_->host->journal_place().first_segment](const Responder& responder) {
        const auto answer =
            [on_answer, responder](const absl::StatusOr<checkpoints::PublishedCheckpoint>& saved) {
              responder.Reply([on_answer, saved] { on_answer(saved); });
            };
        const absl::Status attached = coordinator->CheckAttached(shard, instance_id, first_segment);
        if (!attached.ok()) return answer(attached);
        rpc::TakeLastCheckpoint(*coordinator->life_->strand, instance_id,
                                coordinator::ReasonOfStop(shard), call.patience, answer);
      },
      on_answer);
}

void SimulatedServer::GoOnWithLastSave(const std::optional<rpc::LastSaveCalls::Outcome>& outcome) {
  if (exit_.has_value()) return;
  if (outcome.has_value()) return OnLastSave(*outcome);
  process_.After(rpc::LastSaveCalls::kPause, [this] {
    if (!exit_.has_value()) CallForLastSave();
  });
}

// Does what Server::Stop() does.
void SimulatedServer::OnLastSave(const absl::StatusOr<checkpoints::PublishedCheckpoint>& saved) {
  if (cluster_->is_draining || exit_.has_value()) return;
  process_.world().Tell(process_.name(), ": the last checkpoint: ",
                        saved.ok() ? saved->path : saved.status().ToString());
  cluster_->audit->OnStopped(process_.name(), saved);
  Exit(absl::CancelledError("told to stop"));
  // This must not be done inside a call of the strand.
  process_.After(absl::ZeroDuration(), [this] {
    if (shard_ == 0) {
      life_->strand->Stop();
      for (const auto& [shard, remote] : std::exchange(life_->remotes, {})) {
        remote.stream->Close(Stream::kServer, absl::AbortedError("the coordinator is stopping"));
      }
    } else if (life_->attachment != nullptr) {
      std::exchange(life_->attachment, nullptr)
          ->Close(Stream::kClient, absl::CancelledError("this server stops"));
    }
    life_->host->Shutdown(StoppingStatus());
  });
}

void SimulatedServer::StopJob() {
  process_.Take(process_.life(), [this] {
    life_->strand->Run([](coordinator::Coordinator& coordinator, absl::Time now) {
      coordinator.RequestStop("an operator asked for it", now);
    });
  });
}

void SimulatedServer::OnEvent(shards::ShardEvent event) {
  if (const auto* loaded = std::get_if<shards::ShardLoaded>(&event)) {
    if (cluster_->is_draining) return;
    NoteLoaded(*loaded);
  } else if (const auto* diverged = std::get_if<shards::ShardDiverged>(&event)) {
    return cluster_->audit->Fail("round ", diverged->round.value(),
                                 " of whole numbers diverged: ", diverged->text);
  } else if (const auto* fault = std::get_if<sync::WorkerFault>(&event)) {
    process_.world().Tell(process_.name(), ": ", fault->text);
  } else if (const auto* connections = std::get_if<shards::ShardConnections>(&event)) {
    process_.world().Tell(process_.name(), ": all connections of ",
                          connections->life.worker.value(),
                          connections->are_closed ? " are closed" : " are not closed");
  }
  SendReport(
      [shard = shard_, event = std::move(event)](coordinator::Coordinator& own, absl::Time now) {
        own.OnShardEvent(shard, event, now);
      });
}

bool SimulatedServer::MayLackMemory() const {
  const coordinator::Coordinator* const coordinator = cluster_->servers[0]->coordinator();
  return coordinator != nullptr && coordinator->replaces_servers();
}

machine::HostMemory SimulatedServer::ReadMemory() {
  if (cluster_->is_draining) return {};
  // A process compares its needs with its memory once, when it loads for the first time.
  if (!std::exchange(life_->lacks_memory, false)) return {};
  if (!MayLackMemory()) return {};
  process_.world().Tell(process_.name(), " has too little memory");
  return {.total_bytes = 1, .available_bytes = 1, .limited_by = "the scenario"};
}

void SimulatedServer::NoteLoaded(const shards::ShardLoaded& loaded) {
  const auto shard = life_->host->shard();
  const bool is_known = audit() != nullptr;  // the shard has recovered
  if (!is_known) life_->audit = nullptr;
  if (loaded.status.ok() && loaded.server_incarnation == cluster_->begun_anew_as) {
    cluster_->gone_back.erase(shard_);
    cluster_->attached_gone_back.erase(shard_);
  }
  // A shard that has gone back has older weights, which must not count.
  const bool has_gone_back = cluster_->gone_back.contains(shard_);
  if (!is_known && !has_gone_back && loaded.status.ok() && shard.ok()) {
    life_->audit = cluster_->audit->OnLoaded(
        loaded.server_incarnation, shard_, absl::StrCat(process_.name(), " life ", process_.life()),
        **shard);
  }
}

void SimulatedServer::OnContributed(uint64_t server_incarnation, const messages::WorkerLife& life,
                                    Round round) {
  if (cluster_->is_draining || (shard_ == 0 && exit_.has_value())) return;
  const Contributed contributed = {server_incarnation, life, round,
                                   life_->host->journal_place().end};
  shard_ == 0 ? TakeContributed(shard_, contributed) : SendContributed(contributed, kFirstPause);
}

void SimulatedServer::TakeContributed(int shard, const Contributed& contributed) {
  life_->strand->ReportTo([&](coordinator::Coordinator& own, absl::Time) -> std::vector<uint64_t> {
    own.NoteJournalEnd(shard, contributed.journal_end);
    const bool is_last = own.OnContributed(shard, contributed.server_incarnation, contributed.life,
                                           contributed.round);
    if (!is_last) return {};
    return {contributed.life.incarnation.value()};
  });
}

void SimulatedServer::SendContributed(const Contributed& contributed, absl::Duration pause) {
  SimulatedServer* const coordinator = cluster_->servers[0];
  const auto on_answer = [this, contributed, pause](const absl::Status& status) {
    if (status.ok() || RemedyFor(status) == Remedy::kGiveUp) return;
    process_.After(pause, [this, contributed, pause] {
      SendContributed(contributed, std::min(pause * 2, kLongestPause));
    });
  };
  cluster_->network->Call(
      process_, coordinator->process(), Lane::kControl, kReportDeadline,
      [coordinator, contributed, on_answer, shard = shard_, instance_id = life_->instance_id,
       first_segment = life_->host->journal_place().first_segment](const Responder& responder) {
        const absl::Status attached = coordinator->CheckAttached(shard, instance_id, first_segment);
        if (attached.ok()) coordinator->TakeContributed(shard, contributed);
        responder.Reply([on_answer, attached] { on_answer(attached); });
      },
      on_answer);
}

void SimulatedServer::CheckMayEnd(const shards::DropCommand& drop) const {
  if (!absl::StrContains(drop.reason, "its connections were closed")) return;
  const ClusterContext::Connections& connections = cluster_->connections[drop.incarnation];
  if (connections.has_process_ended) return;
  const auto disturbed = cluster_->disturbed_until.find(connections.process);
  const bool could_dial = disturbed == cluster_->disturbed_until.end() ||
                          disturbed->second + kTimeToDial < connections.closed_alone_at;
  if (connections.closed_alone_at > absl::InfinitePast() && !could_dial) return;
  cluster_->audit->Fail("the life ", drop.incarnation.value(), " of worker ", drop.worker.value(),
                        ", whose process lives, is ended: ", drop.reason);
}

void SimulatedServer::OnNotice(absl::string_view text) {
  process_.world().Tell(process_.name(), ": ", text);
  // Checkpoints may be damaged here, but journals may not.
  if (absl::StrContains(text, "of the journal: ")) {
    cluster_->audit->Fail(process_.name(), ": ", text);
  }
}

void SimulatedServer::OnRestoreChosen(const absl::StatusOr<coordinator::RestoreChoice>& choice) {
  if (cluster_->is_draining) return;
  life_->strand->Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnRestoreChosen(choice, now);
  });
}

void SimulatedServer::OnCheckpointPublished(
    const std::string& directory,
    const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) {
  if (cluster_->is_draining) return;
  if (published.ok()) cluster_->audit->OnPublished(*published);
  process_.world().Tell("checkpoint ", directory, ": ",
                        published.ok() ? "published" : published.status().ToString());
  life_->strand->Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnCheckpointPublished(directory, published, now);
  });
}

void SimulatedServer::OnCheckpointMarked(bool is_complete, const absl::Status& status) {
  if (cluster_->is_draining) return;
  life_->strand->Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnCheckpointMarked(is_complete, status, now);
  });
}

void SimulatedServer::Register(const messages::RegisterCall& call,
                               Reply<messages::Registration> reply) {
  const bool goes_on = life_->strand->Run(
      [&](coordinator::Coordinator& coordinator, absl::Time) { return coordinator.GoesOn(call); });
  if (is_draining() && !goes_on) return reply(StoppingStatus());
  life_->strand->Await(
      0, kRegisterHold,
      [call = call, reply, cluster = cluster_, audit = cluster_->audit](
          coordinator::Coordinator& coordinator, absl::Time now,
          rpc::CoordinatorStrand::Occasion occasion) mutable -> rpc::CoordinatorStrand::Delivery {
        const std::optional<std::string> holder = coordinator.PeerOfHolder(call);
        call.holder_is_gone = holder.has_value() && !cluster->open_connections.contains(
                                                        holder->substr(0, holder->find('#')));
        absl::StatusOr<messages::Registration> answer = coordinator.Register(call, now);
        if (absl::IsUnavailable(answer.status()) &&
            occasion == rpc::CoordinatorStrand::Occasion::kChange) {
          return nullptr;
        }
        return
            [reply, audit, name = call.name, answer = std::move(answer)](const absl::Status& kept) {
              if (kept.ok() && answer.ok()) audit->OnRegistered(*answer, name);
              reply(kept.ok() ? answer : kept);
            };
      });
}

void SimulatedServer::Join(const messages::WorkerLife& life, const std::string& layout_hash,
                           const messages::DatasetInfo& data, const Reply<ViewId>& reply) {
  life_->strand->RunAndTell(
      [&](coordinator::Coordinator& coordinator, absl::Time now) -> absl::StatusOr<ViewId> {
        if (is_draining() && !coordinator.IsMember(life)) return StoppingStatus();
        absl::StatusOr<ViewId> joined = coordinator.Join(life, layout_hash, data, now);
        if (joined.ok() && !is_replaced()) cluster_->audit->OnJoined(life.worker);
        return joined;
      },
      reply);
}

void SimulatedServer::Heartbeat(const messages::HeartbeatCall& call, const std::string& peer,
                                const Reply<messages::HeartbeatAnswer>& reply) {
  reply(life_->strand->Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.NoteConnection(call.life, peer);
    return coordinator.Heartbeat(call, now);
  }));
}

void SimulatedServer::StayConnected(const messages::WorkerLife& life, const std::string& peer,
                                    const std::shared_ptr<Stream>& stream) {
  const absl::Status known =
      life_->strand->Run([&](coordinator::Coordinator& coordinator, absl::Time) {
        return coordinator.CheckLife(life);
      });
  if (!known.ok()) return stream->Close(Stream::kServer, known);
  stream->OnBroken(Stream::kServer, [this, life, peer](const absl::Status& end) {
    if (absl::IsCancelled(end)) return;  // only the call has ended, and not its connection
    process_.world().Tell(process_.name(), ": the connection ", peer, " has ended",
                          IsClosedByPeer(end) ? ", closed by its other end" : "");
    life_->strand->Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
      coordinator.OnConnectionEnded(life, peer, IsClosedByPeer(end), now);
    });
  });
}

void SimulatedServer::NextGrant(const messages::WorkerLife& life,
                                const std::optional<messages::RoundReport>& report, Asks asks,
                                bool without_samples, Reply<coordinator::GrantAnswer> reply) {
  using Occasion = rpc::CoordinatorStrand::Occasion;
  life_->strand->Await(
      life.incarnation.value(), kGrantHold,
      [this, life, report, asks, without_samples, reply, audit = cluster_->audit,
       has_asked = false](coordinator::Coordinator& coordinator, absl::Time now,
                          Occasion occasion) mutable -> rpc::CoordinatorStrand::Delivery {
        const auto finish = [this, reply, audit, life,
                             report](const absl::StatusOr<coordinator::GrantAnswer>& answer) {
          return [=, this](const absl::Status& kept) {
            // By now the audit knows the events that led to the answer.
            if (kept.ok() && answer.ok()) {
              if (report.has_value()) CheckIsKnown(life, report->round);
              audit->OnAnswered(life, report, *answer);
            }
            reply(kept.ok() ? answer : kept);
          };
        };
        if (occasion == Occasion::kStopping) return finish(absl::UnavailableError("stopping"));
        if (occasion == Occasion::kReplaced) return finish(absl::CancelledError("replaced"));
        if (asks == Asks::kAhead && !has_asked &&
            coordinator.AwaitsContribution(life, report->round)) {
          if (occasion != Occasion::kPatienceOver) return nullptr;
          return [reply](const absl::Status& kept) {
            reply(kept.ok() ? absl::StatusOr<coordinator::GrantAnswer>(coordinator::GrantAnswer())
                            : kept);
          };
        }
        if (asks == Asks::kLeaving && !has_asked) {
          const absl::Status begun = coordinator.BeginLeave(life, now);
          if (!begun.ok()) return finish(begun);
        }
        if (!has_asked && report.has_value()) {
          const bool is_patience_over = occasion == Occasion::kPatienceOver;
          if (coordinator.AwaitsJournals(life, report->round, is_patience_over)) {
            if (!is_patience_over) return nullptr;
            return finish(absl::UnavailableError("a server that is away has not told of it"));
          }
        }
        const bool is_first = !std::exchange(has_asked, true);
        const bool counts = is_first && IsBeforeTheEnd(report, coordinator, now);
        absl::StatusOr<coordinator::GrantAnswer> answer =
            is_first ? coordinator.RequestGrant(life, report, now, without_samples)
                     : coordinator.PollGrant(life, now);
        if (answer.ok() && counts) TellAudit(life, *report);
        if (answer.ok() && is_first && report.has_value() && !is_replaced()) {
          audit->OnReportTaken(life.incarnation, report->round);
        }
        if (answer.ok() && !answer->grant.has_value()) {
          if (occasion != Occasion::kPatienceOver) return nullptr;
          answer->pending_reason = coordinator.WhyNoGrant(life, now);
        }
        return finish(answer);
      });
}

void SimulatedServer::ExtendGrant(const messages::WorkerLife& life, Round round,
                                  const Reply<messages::Grant>& reply) {
  life_->strand->RunAndTell(
      [&](coordinator::Coordinator& coordinator, absl::Time now) {
        absl::StatusOr<messages::Grant> more = coordinator.ExtendGrant(life, round, now);
        if (!is_replaced()) cluster_->audit->OnExtensionJudged(life, round, more);
        return more;
      },
      [this, life, reply, audit = cluster_->audit](const absl::StatusOr<messages::Grant>& more) {
        if (more.ok() && !is_replaced()) audit->OnExtended(life, *more);
        reply(more);
      });
}

void SimulatedServer::TellAudit(const messages::WorkerLife& life,
                                const messages::RoundReport& report) {
  is_replaced() ? cluster_->audit->OnReportedToReplaced(life, report)
                : cluster_->audit->OnReported(life, report);
}

void SimulatedServer::CheckIsKnown(const messages::WorkerLife& life, Round reported) const {
  const SimulatedServer& holder = *cluster_->servers[shard_];
  // If the holder has not begun yet, Audit::OnResumed() checks it later.
  if (!is_replaced() || !holder.memory_.has_value()) return;
  // The holder has gone back to a checkpoint since.
  if (holder.memory_->shards.server_incarnation != life_->coordinator->server_incarnation()) return;
  const auto desk = holder.memory_->desks.find(life.worker);
  if (desk != holder.memory_->desks.end() &&
      desk->second.assignment.last_reported >= reported.value())
    return;
  cluster_->audit->Fail(process_.name(), " has acknowledged the report of round ", reported.value(),
                        " of worker ", life.worker.value(), ", which ", holder.process_.name(),
                        " does not know, and that holds the folders");
}

void SimulatedServer::Leave(const messages::WorkerLife& life, const std::string& reason,
                            const std::optional<messages::RoundReport>& report,
                            const Reply<bool>& reply) {
  life_->strand->RunAndTell(
      [&](coordinator::Coordinator& coordinator, absl::Time now) {
        const bool counts = IsBeforeTheEnd(report, coordinator, now);
        absl::Status left = coordinator.Leave(life, reason, report, now);
        if (left.ok() && counts) TellAudit(life, *report);
        return left;
      },
      [reply](const absl::Status& left) { reply(left.ok() ? absl::StatusOr<bool>(true) : left); });
}

std::string SimulatedServer::ShardWaitsFor() const {
  if (life_ == nullptr) return "has no process";
  const auto shard = life_->host->shard();
  return shard.ok() ? (*shard)->WaitingFor() : std::string(shard.status().message());
}

void SimulatedServer::RequestCheckpoint() {
  life_->strand->Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.RequestCheckpoint(now).IgnoreError();
  });
}

void SimulatedServer::Pause() {
  life_->strand->Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.Pause("an operator wants it", now).IgnoreError();
  });
}

void SimulatedServer::Resume() {
  life_->strand->Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.Resume(now).IgnoreError();
  });
}

void SimulatedServer::BeginPush(uint64_t call, std::shared_ptr<Stream> stream,
                                ServedPush::Answer answer) {
  const auto shard = life_->host->shard();
  if (!shard.ok() || audit() == nullptr) {
    return answer(shard.ok() ? absl::UnavailableError("not loaded") : shard.status());
  }
  ForgetCallsThatAreOver(life_->pushes);
  auto push = std::make_shared<ServedPush>(*shard, audit(), std::move(answer));
  life_->pushes[call] = push;
  // The stream owns the push.
  stream->OnBroken(Stream::kServer, [push](const absl::Status&) { push->Abandon(); });
}

void SimulatedServer::TakeBucket(uint64_t call, PushedBucket bucket) {
  if (const auto found = life_->pushes.find(call); found != life_->pushes.end()) {
    if (const auto push = found->second.lock(); push != nullptr) push->Take(std::move(bucket));
  }
}

void SimulatedServer::EndPush(uint64_t call) {
  if (const auto found = life_->pushes.find(call); found != life_->pushes.end()) {
    if (const auto push = found->second.lock(); push != nullptr) push->OnClientDone();
  }
}

void SimulatedServer::Pull(uint64_t call, const std::shared_ptr<Stream>& stream, PullOrder order,
                           ServedPull::Deliver deliver, ServedPull::Answer answer) {
  const auto shard = life_->host->shard();
  if (!shard.ok()) return answer(shard.status());
  ForgetCallsThatAreOver(life_->pulls);
  auto pull =
      std::make_shared<ServedPull>(*shard, std::move(order), std::move(deliver), std::move(answer));
  life_->pulls[call] = pull;
  stream->OnBroken(Stream::kServer, [pull](const absl::Status&) { pull->Abandon(); });
  pull->ReadNext();
}

std::optional<client::ServedCall> SimulatedServer::Describe(uint64_t call) const {
  if (const auto push = life_->pushes.find(call); push != life_->pushes.end()) {
    if (const auto known = push->second.lock(); known != nullptr) return known->Describe();
  }
  if (const auto pull = life_->pulls.find(call); pull != life_->pulls.end()) {
    if (const auto known = pull->second.lock(); known != nullptr) return known->Describe();
  }
  return std::nullopt;
}

absl::Status SimulatedServer::TryPath() const { return life_->host->shard().status(); }

}  // namespace lodestar::simulation
