// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator_role.h"

#include <grpcpp/server_builder.h>

#include <filesystem>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "common/checkpoints/checkpoint_copy.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/history/run_history.h"
#include "common/http/neighbour_pages.h"
#include "common/job/job_loss.h"
#include "common/logging/logging.h"
#include "common/machine/own_memory.h"
#include "common/params/layout.h"
#include "common/params/shard_plan.h"
#include "common/plan/shard_memory.h"
#include "common/process/shell_command.h"
#include "common/runtime/check.h"
#include "common/runtime/file_io.h"
#include "common/runtime/overloaded.h"
#include "common/runtime/status_macros.h"
#include "common/security/certificates.h"
#include "server/advertised_address.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/shard_files.h"
#include "server/coordinator/coordinator_memory_json.h"
#include "server/coordinator/model/job_model.h"
#include "server/http/status_pages.h"
#include "server/limits/memory_bound.h"
#include "server/page_names.h"
#include "server/page_orders.h"
#include "server/rpc/checkpoint_calls.h"
#include "server/rpc/cluster_status_convert.h"
#include "server/rpc/shard_convert.h"

namespace lodestar::server {
namespace {

constexpr int kLifeKeyBytes = 32;

uint64_t RandomJournalId() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random() | 1;
}

// Interval at which leases and held calls are checked.
constexpr absl::Duration kTick = absl::Milliseconds(50);
// Interval at which the newest checkpoint is checked. Another program may have removed it.
constexpr absl::Duration kCheckpointLook = absl::Seconds(10);
// How long SaveBeforeStop() waits after `patience` for the journal to record the outcome.
constexpr absl::Duration kJournalPatience = absl::Seconds(2);
// How long SaveWithoutWorkers() waits until all servers are attached and serve.
constexpr absl::Duration kAttachPatience = absl::Minutes(1);

CoordinatorRole::Deps WithDisks(CoordinatorRole::Deps deps) {
  if (deps.journal_disk == nullptr) deps.journal_disk = deps.disk;
  if (deps.checkpoint_disk == nullptr) deps.checkpoint_disk = deps.disk;
  return deps;
}

// Logs a command that opens or ends a round, for debugging.
void LogRound(const shards::ShardCommand& command) {
  if (const auto* open = std::get_if<shards::OpenRoundCommand>(&command); open != nullptr) {
    logging::LogDebug("round opened round={} view={} workers={}", open->plan.round, open->plan.view,
                      open->plan.roster.size());
  } else if (const auto* close = std::get_if<shards::CloseRoundCommand>(&command);
             close != nullptr) {
    logging::LogDebug("round reported round={} workers={}", close->round, close->reported.size());
  }
}

void LogRound(const coordinator::Announcement& announcement) {
  if (const auto* summary = std::get_if<rounds::RoundSummary>(&announcement); summary != nullptr) {
    logging::LogDebug("round over round={} workers={} samples={}", summary->round, summary->workers,
                      summary->samples);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorRole>> CoordinatorRole::Create(const ServerConfig& config,
                                                                         const Deps& deps) {
  std::unique_ptr<CoordinatorRole> role(new CoordinatorRole(config, WithDisks(deps)));
  RETURN_IF_ERROR(role->CheckResources());
  if (deps.security->authority() != nullptr) role->MakeAuthorityRpc();
  role->MakeCheckpointCommand();
  status::ProgressRecorder::Config recorder;
  recorder.metrics_out = config.output.metrics_out;
  recorder.may_share_metrics = !deps.leader.key.empty();
  recorder.tensorboard_dir = config.output.tensorboard_dir;
  recorder.clock = deps.clock;
  recorder.loss_unit = job::LossUnitOf(config.job.model);
  recorder.on_failure = [raw = role.get()](absl::string_view text) {
    raw->strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
      coordinator.RaiseAlarm(text, now);
    });
  };
  const auto set_alarm = [raw = role.get()](absl::string_view subject, const absl::Status& status) {
    raw->strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
      coordinator.SetAlarm(subject, status, now);
    });
  };
  recorder.on_writing = set_alarm;
  recorder.on_recorded = [raw = role.get()](const rounds::RoundSummary& summary) {
    raw->strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time) {
      coordinator.OnRecorded(summary);
    });
  };
  ASSIGN_OR_RETURN(role->recorder_, status::ProgressRecorder::Create(recorder));
  if (const std::string& folder = config.durability.checkpoint_dir; !folder.empty()) {
    status::HistoryKeeper::Deps keeper;
    keeper.clock = deps.clock;
    keeper.recorder = &role->history_;
    keeper.on_trouble = [set_alarm](const absl::Status& status) {
      set_alarm("curves of the dashboard", status);
    };
    keeper.confirm = [raw = role.get()] {
      return raw->locks_.empty() ? absl::OkStatus() : raw->locks_.front()->Confirm();
    };
    role->history_keeper_ = std::make_unique<status::HistoryKeeper>(
        absl::StrCat(folder, "/", history::kHistoryFileName), keeper);
    if (const std::string& lost = role->history_keeper_->lost(); !lost.empty()) {
      role->alarms_.push_back(lost);
    }
  }
  return role;
}

CoordinatorRole::CoordinatorRole(const ServerConfig& config, Deps deps)
    : config_(config), deps_(std::move(deps)), strand_(deps_.clock, kTick) {}

void CoordinatorRole::MakeCheckpointCommand() {
  const std::string& command = config_.durability.on_checkpoint;
  if (command.empty()) return;
  command_thread_ = std::make_unique<ThreadPool>(1, "on_checkpoint");
  host::CheckpointCommand::Deps deps;
  deps.clock = deps_.clock;
  deps.executor = command_thread_.get();
  deps.run = [command, clock = deps_.clock](const std::string& folder,
                                            const std::vector<std::string>& set_aside,
                                            const std::function<bool()>& must_end) -> absl::Status {
    process::ShellCommandDeps shell;
    shell.clock = clock;
    shell.must_end = must_end;
    shell.on_line = [](absl::string_view line) { logging::LogInfo("on_checkpoint: {}", line); };
    const absl::Status status = process::RunShellCommand(
        {command,
         {{checkpoints::kFinishedCheckpointVariable, folder},
          {checkpoints::kSetAsideVariable, absl::StrJoin(set_aside, " ")}}},
        shell);
    logging::LogInfo("--on_checkpoint for {}: {}", folder,
                     status.ok() ? "the command has finished" : status.message());
    return status;
  };
  deps.exists = [disk = deps_.disk](const std::string& folder) { return disk->Exists(folder); };
  deps.on_outcome = [this](const absl::Status& outcome) {
    strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
      coordinator.SetAlarm("--on_checkpoint", outcome, now);
    });
  };
  checkpoint_command_ = std::make_unique<host::CheckpointCommand>(std::move(deps));
}

absl::Status CoordinatorRole::CheckResources() {
  if (std::holds_alternative<params::ClientModelSpec>(config_.job.model.architecture)) {
    return OpenFolders(/*checkpoint_bytes=*/0);
  }
  ASSIGN_OR_RETURN(const params::Layout layout, params::BuildLayout(config_.job.model));
  ASSIGN_OR_RETURN(const std::vector<params::ElementRange> ranges,
                   params::PlanShards(layout, config_.cluster.num_shards));
  const plan::ShardMemory shard =
      plan::EstimateShardMemory(config_.job, ranges[0].size(), config_.limits.staging_bytes);
  ASSIGN_OR_RETURN(const std::string warning, plan::CheckShardMemory(shard, deps_.read_memory()));
  if (!warning.empty()) warnings_.push_back(warning);
  if (const std::string& folder = config_.durability.checkpoint_dir; !folder.empty()) {
    if (const absl::Status sizes = checkpoint::CheckShardFileSizes(/*shard=*/0, shard);
        !sizes.ok()) {
      return absl::Status(sizes.code(),
                          absl::StrCat("--checkpoint_dir=", folder, ": ", sizes.message()));
    }
  }
  return OpenFolders(plan::EstimateShardMemory(config_.job, layout.num_elements()).checkpoint());
}

absl::Status CoordinatorRole::OpenFolders(int64_t checkpoint_bytes) {
  const DurabilityConfig& durability = config_.durability;
  if (durability.checkpoint_dir.empty()) {
    if (config_.is_site()) {
      warnings_.emplace_back(
          "this site's server has no --checkpoint_dir; if it is started again, the state of its "
          "optimizer is lost");
      return absl::OkStatus();
    }
    warnings_.emplace_back(
        "NOTHING IS SAVED, because there is no --checkpoint_dir. When this server ends, the "
        "training is lost, unless psctl export saves the weights before");
    return absl::OkStatus();
  }
  const bool keeps_two_kinds =
      durability.checkpoint_every > 0 && durability.checkpoint_interval > absl::ZeroDuration();
  RETURN_IF_ERROR(OpenFolder("checkpoint_dir", durability.checkpoint_dir, checkpoint_bytes,
                             durability.keep * (keeps_two_kinds ? 2 : 1) + 1));
  if (durability.has_journal) {
    RETURN_IF_ERROR(OpenFolder("journal_dir", JournalFolder(), /*checkpoint_bytes=*/0,
                               /*num_checkpoints=*/0));
    journal_lock_ = locks_.back().get();
  }
  if (durability.fallback_dir.empty()) return absl::OkStatus();
  return OpenFolder("fallback_dir", durability.fallback_dir, checkpoint_bytes, 1);
}

absl::Status CoordinatorRole::OpenFolder(absl::string_view flag, const std::string& folder,
                                         int64_t checkpoint_bytes, int num_checkpoints) {
  const auto explain = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat("--", flag, "=", folder, ": ", status.message()));
  };
  const absl::StatusOr<std::string> tried =
      checkpoint::TryCheckpointFolder(*deps_.disk, folder, checkpoint_bytes, num_checkpoints);
  if (!tried.ok()) return explain(tried.status());
  if (!tried->empty()) warnings_.push_back(*tried);
  storage::FolderLock::Deps deps;
  deps.clock = deps_.clock;
  deps.is_interrupted = deps_.is_interrupted;
  deps.confirm_leader = deps_.confirm_leader;
  // Only a checkpoint shows the lock that another run uses the folder. A journal does not show it,
  // because a new folder gets its journal before its first checkpoint.
  deps.is_content = [folder](absl::string_view name) {
    const auto entry = checkpoints::ParseCheckpointName(folder, std::string(name));
    return entry.has_value() && entry->suffix != checkpoints::kTemporarySuffix;
  };
  deps.on_lost = [this](const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    lost_lock_ = status;
  };
  absl::StatusOr<std::unique_ptr<storage::FolderLock>> lock =
      storage::FolderLock::Take(folder, storage::NewFolderClaim(deps_.leader), std::move(deps));
  if (!lock.ok()) return explain(lock.status());
  if (const auto& crashed = (*lock)->crashed_holder(); crashed.has_value()) {
    logging::LogWarn(
        "{}: {} ended without releasing this folder, for example by kill -9 or a power cut. This "
        "server now uses the folder",
        folder, crashed->Describe());
  }
  (*lock)->StartBeating();
  locks_.push_back(*std::move(lock));
  return absl::OkStatus();
}

absl::StatusOr<shards::JournalFacts> CoordinatorRole::ReadJournalFacts() const {
  const DurabilityConfig& durability = config_.durability;
  shards::JournalFacts facts;
  if (durability.has_journal) {
    facts.folder = JournalFolder();
    facts.end = found_record_;
    facts.damage = journal_damage_;
    facts.new_journal_id = RandomJournalId();
  }
  facts.is_excused = durability.resume != ResumePolicy::kLatest;
  facts.is_promoted = deps_.is_promoted;
  if (durability.accepted_loss >= 0) facts.accepted_loss = Round(durability.accepted_loss);
  if (facts.is_excused || durability.checkpoint_dir.empty()) return facts;
  ASSIGN_OR_RETURN(facts.newest, checkpoints_->Newest());
  return facts;
}

absl::StatusOr<coordinator::Coordinator::Config> CoordinatorRole::CoordinatorSettings() const {
  coordinator::Coordinator::Config coordinator;
  ASSIGN_OR_RETURN(coordinator.journal, ReadJournalFacts());
  coordinator.job = config_.job;
  coordinator.given = config_.given;
  coordinator.open_settings = config_.open_settings;
  coordinator.num_shards = config_.cluster.num_shards;
  coordinator.memory = deps_.read_memory();
  coordinator.staging_bytes = config_.limits.staging_bytes;
  coordinator.registrations.per_origin = config_.limits.registrations_per_minute;
  coordinator.registrations.from_loopback = config_.limits.registrations_per_minute_in_all();
  coordinator.registrations.in_all = config_.limits.registrations_per_minute_in_all();
  coordinator.life_key = security::RandomHex(kLifeKeyBytes);
  coordinator.lease = config_.cluster.lease;
  coordinator.ends_unconnected = config_.cluster.ends_unconnected;
  coordinator.checkpoint_dir = config_.durability.checkpoint_dir;
  if (!locks_.empty()) coordinator.folder_claim_id = locks_.front()->claim_id();
  coordinator.fallback_dir = config_.durability.fallback_dir;
  coordinator.checkpoint_schedule = {.every_rounds = config_.durability.checkpoint_every,
                                     .interval = config_.durability.checkpoint_interval,
                                     .max_cost = config_.durability.checkpoint_cost};
  coordinator.has_journal = config_.durability.has_journal;
  coordinator.journal_limit_bytes = config_.durability.journal_limit_bytes;
  coordinator.round_timeout = config_.cluster.round_timeout;
  coordinator.stop_timeout = config_.cluster.stop_timeout;
  coordinator.exit_when_done = config_.exit_when_done;
  coordinator.upstream = config_.upstream.address;
  coordinator.divergence = config_.divergence;
  return coordinator;
}

host::CheckpointKeeper::Config CoordinatorRole::KeeperSettings() const {
  const DurabilityConfig& durability = config_.durability;
  host::CheckpointKeeper::Config keeper;
  keeper.root = durability.checkpoint_dir;
  keeper.fallback = durability.fallback_dir;
  keeper.retention = {.keep = durability.keep, .every_rounds = durability.checkpoint_every};
  keeper.resume = durability.resume != ResumePolicy::kNever;
  keeper.resume_path = durability.resume_path;
  keeper.init_from = durability.init_from;
  keeper.accepts_higher_rate = durability.accepts_higher_rate;
  if (!locks_.empty() && locks_.front()->crashed_holder().has_value()) {
    keeper.crashed_holder = locks_.front()->crashed_holder()->Describe();
  }
  keeper.confirm_folder = [this](absl::string_view checkpoint) {
    for (const std::unique_ptr<storage::FolderLock>& lock : locks_) {
      if (absl::StartsWith(checkpoint, lock->folder() + "/")) RETURN_IF_ERROR(lock->Confirm());
    }
    return deps_.confirm_leader();
  };
  for (const std::unique_ptr<storage::FolderLock>& lock : locks_) {
    keeper.lease_revision = std::max(keeper.lease_revision, lock->revision());
  }
  keeper.job = config_.job;
  keeper.saving = {
      {"checkpoint_interval", absl::FormatDuration(durability.checkpoint_interval)},
      {"checkpoint_cost", absl::StrCat(durability.checkpoint_cost)},
      {"checkpoint_every", absl::StrCat(durability.checkpoint_every)},
      {"checkpoint_keep", absl::StrCat(durability.keep)},
  };
  keeper.given = config_.given;
  keeper.open_settings = config_.open_settings;
  return keeper;
}

std::string CoordinatorRole::JournalFolder() const {
  return absl::StrCat(config_.durability.journal_dir, "/coordinator");
}

absl::StatusOr<std::unique_ptr<coordinator::Coordinator>> CoordinatorRole::MakeCoordinator(
    const host::ShardHost& local) {
  const absl::Time now = deps_.clock->Now();
  std::optional<coordinator::CoordinatorMemory> memory;
  if (config_.durability.has_journal) {
    ASSIGN_OR_RETURN(memory, OpenJournal(now));
  }
  if (memory.has_value() && memory->checkpoints.tracker.last.has_value()) {
    std::string& path = memory->checkpoints.tracker.last->path;
    path = local.PathToday(path);
    checkpoints_->Watch(path);
  }
  if (memory.has_value()) {
    ASSIGN_OR_RETURN(const uint64_t last, checkpoints_->LastServerIncarnation());
    ASSIGN_OR_RETURN(const std::optional<shards::KnownCheckpoint> newest, checkpoints_->Newest());
    // The newest checkpoint belongs to a journal that may have more rounds than the checkpoint. The
    // coordinator later compares that journal with this one, so the state is kept here.
    const bool is_compared =
        newest.has_value() && newest->journal.journal_id != 0 && !newest->journal.is_complete;
    if (last > memory->shards.server_incarnation && !is_compared) {
      alarms_.push_back(
          absl::StrCat("the journal ", JournalFolder(),
                       " is older than the newest checkpoint, which servers without this journal "
                       "wrote. The server continues from the checkpoint"));
      memory.reset();
    }
  }
  // Unless --resume is `latest`, it says where to start, and the journal is not used.
  const bool is_wanted = config_.durability.resume == ResumePolicy::kLatest;
  if (memory.has_value() && !is_wanted && !coordinator::IsAllInCheckpoint(*memory)) {
    alarms_.push_back(absl::StrCat(
        "the server starts from the checkpoint of --resume. The journal ", JournalFolder(),
        " has rounds that are in no checkpoint; these rounds are lost"));
  }
  ASSIGN_OR_RETURN(coordinator::Coordinator::Config settings, CoordinatorSettings());
  if (!memory.has_value() || !is_wanted)
    return coordinator::Coordinator::Create(std::move(settings), now);
  const job::JobSpec job =
      model::JobOf(memory->model, config_.job, config_.given, config_.open_settings);
  const absl::Status same = coordinator::CheckSameJob(*memory, job, config_.cluster.num_shards);
  if (!same.ok() && coordinator::IsAllInCheckpoint(*memory)) {
    logging::LogInfo(
        "the flags differ from the settings in the journal ({}). No round is lost, because the "
        "server continues from a checkpoint that has all rounds of the journal: {}",
        same.message(), memory->checkpoints.tracker.last->path);
    return coordinator::Coordinator::Create(std::move(settings), now);
  }
  if (same.ok() && model::IsOfEarlierLayout(memory->model, config_.job)) {
    if (coordinator::IsAllInCheckpoint(*memory)) {
      logging::LogInfo(
          "the journal was written by a release with other tensor names. No round is lost, because "
          "the server continues from a checkpoint that has all rounds of the journal: {}",
          memory->checkpoints.tracker.last->path);
      return coordinator::Coordinator::Create(std::move(settings), now);
    }
    logging::LogInfo(
        "the server continues from a journal that was written by a release with other tensor "
        "names, and keeps these older names. To change to the names of this release, run psctl "
        "stop and start the server again");
  }
  if (!same.ok()) {
    is_of_former_division_ =
        coordinator::CheckSameJob(*memory, job, static_cast<int>(memory->shards.servers.size()))
            .ok();
    return absl::FailedPreconditionError(
        absl::StrCat("cannot continue from the journal ", JournalFolder(),
                     " with other settings: ", same.message(),
                     ". The journal has rounds that are in no checkpoint. Start with the settings "
                     "of the journal, and end with psctl stop or Ctrl-C, which saves everything; "
                     "then give other settings. To accept that these rounds are lost and go back "
                     "to the newest checkpoint, start once with --resume=PATH of that checkpoint"));
  }
  absl::StatusOr<std::unique_ptr<coordinator::Coordinator>> resumed =
      coordinator::Coordinator::Resume(std::move(settings), *std::move(memory), now);
  if (!absl::IsDataLoss(resumed.status())) return resumed;
  RETURN_IF_ERROR(BeginJournal({}, resumed.status()));
  ASSIGN_OR_RETURN(settings, CoordinatorSettings());
  return coordinator::Coordinator::Create(std::move(settings), now);
}

absl::StatusOr<std::optional<coordinator::CoordinatorMemory>> CoordinatorRole::OpenJournal(
    absl::Time now) {
  const std::string folder = JournalFolder();
  absl::StatusOr<host::CoordinatorJournal::Contents> contents =
      host::CoordinatorJournal::Read(*deps_.journal_disk, folder);
  std::optional<coordinator::CoordinatorMemory> memory;
  absl::Status status = contents.status();
  if (contents.ok() && !contents->records.empty()) {
    auto read = coordinator::CoordinatorMemoryFromRecords(contents->records, now,
                                                          &found_record_.journal_id);
    if (read.ok()) memory = *std::move(read);
    status = read.status();
    found_record_.number = contents->end.last_sequence;
  }
  if (absl::IsDataLoss(status)) {
    RETURN_IF_ERROR(BeginJournal({}, status));
    return std::nullopt;
  }
  RETURN_IF_ERROR(status);
  if (!contents->end.torn.empty()) logging::LogInfo("{}", contents->end.torn);
  RETURN_IF_ERROR(BeginJournal(std::move(contents->end), absl::OkStatus()));
  return memory;
}

absl::Status CoordinatorRole::BeginJournal(journal::JournalEnd end, const absl::Status& damage) {
  if (!damage.ok()) {
    journal_damage_ = std::string(damage.message());
    found_record_ = {};
  }
  const std::string folder = JournalFolder();
  journal_thread_.reset();
  journal_.reset();
  journal_thread_ = std::make_unique<ThreadPool>(1, "journal");
  journal::JournalWriter::Deps deps;
  deps.clock = deps_.clock;
  deps.file_system = deps_.journal_disk;
  deps.executor = journal_thread_.get();
  deps.confirm = [this] {
    RETURN_IF_ERROR(journal_lock_->CheckHeld());
    return deps_.confirm_in_charge();
  };
  deps.reclaim = [this] { return journal_lock_->Reclaim(); };
  deps.on_trouble = [this, folder](const absl::Status& trouble) {
    if (trouble.ok()) return logging::LogInfo("the journal {} can be written again", folder);
    strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time when) {
      coordinator.OnShardEvent(
          0,
          shards::ShardAlarm{absl::StrCat("the journal ", folder,
                                          " cannot be written, and the server answers no calls "
                                          "until the journal can be written again: ",
                                          trouble.message())},
          when);
    });
  };
  ASSIGN_OR_RETURN(journal_,
                   host::CoordinatorJournal::Create({.folder = folder,
                                                     .end = std::move(end),
                                                     // The servers may have a newer state than this
                                                     // journal. It is then replaced, so nothing may
                                                     // be written to it yet.
                                                     .defers_writing = true,
                                                     .replaces_damaged = !damage.ok()},
                                                    std::move(deps)));
  return absl::OkStatus();
}

CoordinatorRole::~CoordinatorRole() { Stop(); }

void CoordinatorRole::CarryOut(coordinator::Effect effect,
                               const shards::CoordinatorRecord& follows) {
  std::visit(
      Overloaded{
          [&](const shards::ShardCommand& command) {
            LogRound(command);
            shards_->Send(command, follows);
          },
          [&](const shards::RepeatedCommand& repeated) { shards_->Repeat(repeated, follows); },
          [&](coordinator::CheckpointTask& task) {
            if (auto* record = std::get_if<checkpoints::CheckpointRecord>(&task)) {
              record->journal.record = follows.number;
            }
            if (auto* mark = std::get_if<coordinator::MarkTask>(&task)) mark->follows = follows;
            checkpoints_->Do(std::move(task));
          },
          [this](coordinator::Announcement& announcement) {
            LogRound(announcement);
            history_.Note(announcement, deps_.clock->Now());
            recorder_->Note(std::move(announcement));
          },
      },
      effect);
}

absl::Status CoordinatorRole::Start(host::ShardHost* local,
                                    std::function<status::ShardReading()> read_local) {
  read_local_ = std::move(read_local);
  local_ = local;
  shards_ = std::make_unique<rpc::CommandedShards>(local);
  if (config_.is_site()) {
    site_ = std::make_unique<site::ServedSite>(&strand_, local, config_.cluster.stop_timeout,
                                               deps_.clock);
  }
  checkpoints_ = std::make_unique<host::CheckpointKeeper>(
      KeeperSettings(),
      host::CheckpointKeeper::Deps{
          .executor = &checkpoint_thread_, .file_system = deps_.checkpoint_disk, .reports = this});
  RETURN_IF_ERROR(checkpoints_->CheckSettings());
  RETURN_IF_ERROR(checkpoints_->OutrankCheckpoints());
  RETURN_IF_ERROR(deps_.confirm_leader());
  ASSIGN_OR_RETURN(std::unique_ptr<coordinator::Coordinator> coordinator, MakeCoordinator(*local));
  strand_.Start(
      std::move(coordinator),
      [this](coordinator::Effect effect, const shards::CoordinatorRecord& follows) {
        CarryOut(std::move(effect), follows);
      },
      journal_.get());
  rpc::ClusterRpc::Deps cluster;
  cluster.strand = &strand_;
  cluster.shards = shards_.get();
  cluster.board = &board_;
  cluster.refusals = deps_.refusals;
  cluster.is_open = deps_.is_open;
  if (config_.cluster.ends_unconnected) {
    held_connections_ = std::make_unique<rpc::HeldConnections>(rpc::HeldConnections::Deps{
        deps_.state_of,
        [this](const messages::WorkerLife& life, const std::string& peer,
               firewall::ConnectionState end) { OnConnectionEnded(life, peer, end); }});
  }
  cluster.held_connections = held_connections_.get();
  cluster.is_address_guessed = IsAddressGuessed(config_.network);
  cluster_rpc_ = std::make_unique<rpc::ClusterRpc>(cluster);
  rpc::StatusRpc::CallerCheck check;
  if (authority::CertificateAuthority* const authority = deps_.security->authority();
      authority != nullptr) {
    check = [authority](const security::Identity& caller) { return authority->CheckHolds(caller); };
  }
  status_rpc_ = std::make_unique<rpc::StatusRpc>([this] { return ReadStatus(); },
                                                 [this] { return history_.Read(); }, deps_.refusals,
                                                 std::move(check));
  rpc::AdminRpc::Deps admin;
  admin.strand = &strand_;
  admin.local = local;
  admin.security = deps_.security->transport();
  admin.prepare_roll_back = [this](Round round) { return checkpoints_->PrepareRollBack(round); };
  if (checkpoint_command_ != nullptr) {
    admin.once_checkpoint_command_done = [this](auto done) {
      checkpoint_command_->OnceDone(std::move(done));
    };
  }
  admin.dashboard_url = [this] { return dashboard_url_; };
  admin.log = deps_.log;
  admin.refusals = deps_.refusals;
  admin_rpc_ = std::make_unique<rpc::AdminRpc>(config_.job, std::move(admin));
  return config_.network.http.has_value() ? StartPages() : absl::OkStatus();
}

absl::Status CoordinatorRole::StartPages() {
  const bool is_plain = deps_.security->transport().is_plain();
  const bool is_remote = config_.has_remote_pages();
  // Orders are requests that change the job, such as a stop. The pages accept them as follows:
  // - Without TLS: from every program, because the server's port accepts them from every program
  //   too.
  // - With TLS, if only this machine reaches the pages: only with this key.
  // - With TLS, if other machines reach the pages: only with credentials, which all pages then
  //   need.
  const std::string order_key = is_plain || is_remote ? "" : security::RandomHex(16);
  http::HttpServer::Config config;
  config.address = *config_.network.http;
  config.pages.routes = http::StatusPages([this] { return ReadStatus(); }, &history_,
                                          PageOrders(&strand_), order_key, deps_.clock);
  http::AddNeighbourPages(config_.durability.checkpoint_dir, &config.pages.routes);
  config.pages.names =
      is_remote ? PageNames(config_.network, HostName()) : config_.network.http_names;
  config.pages.names_flag = "ps_server --http_names";
  config.pages.allows_addresses = is_remote;
  config.pages.on_foreign_order =
      ServerSecurity::MakePageAudit(deps_.refusals, limits::LimitReached::kForeignOrders);
  config.pages.on_foreign_name =
      ServerSecurity::MakePageAudit(deps_.refusals, limits::LimitReached::kDeniedCalls);
  config.shown_host = HostName();
  config.on_failed_handshake = [refusals = deps_.refusals] {
    refusals->Count(limits::LimitReached::kHandshakes);
  };
  config.clock = deps_.clock;
  if (is_remote && !is_plain) {
    config.tls = deps_.security->files();
    config.pages.access = deps_.security->MakePageAccess(deps_.refusals);
  }
  ASSIGN_OR_RETURN(http_, http::HttpServer::Start(std::move(config)));
  logging::LogInfo("dashboard={}", http_->url());
  if (is_remote && is_plain) {
    RaiseAlarm(absl::StrCat("--insecure: ", http_->url(),
                            " is neither encrypted nor protected by a password; everyone who can "
                            "connect to it can read the status and give orders"),
               coordinator::AlarmKind::kReminder);
  }
  dashboard_url_ = absl::StrCat(http_->url(), order_key.empty() ? "" : "#", order_key);
  return absl::OkStatus();
}

void CoordinatorRole::MakeAuthorityRpc() {
  rpc::AuthorityRpc::Deps deps;
  deps.authority = deps_.security->authority();
  deps.own = *deps_.security->files();
  deps.refusals = deps_.refusals;
  deps.address = [this] {
    absl::MutexLock lock(&mutex_);
    return address_;
  };
  deps.evict = [this](absl::string_view identity, absl::string_view reason) {
    return strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
      return coordinator.EvictWorkers(
          [identity](absl::string_view name) { return security::MayActAs(identity, name); }, reason,
          now);
    });
  };
  authority_rpc_ = std::make_unique<rpc::AuthorityRpc>(std::move(deps));
}

void CoordinatorRole::TakeEnrollment(int descriptor, std::string peer) {
  LODESTAR_CHECK(authority_rpc_ != nullptr);
  authority_rpc_->TakeEnrollment(descriptor, std::move(peer));
}

void CoordinatorRole::AddServices(grpc::ServerBuilder& builder) {
  builder.RegisterService(cluster_rpc_.get());
  builder.RegisterService(status_rpc_.get());
  builder.RegisterService(admin_rpc_.get());
  if (authority_rpc_ != nullptr) builder.RegisterService(authority_rpc_.get());
}

absl::Status CoordinatorRole::AttachLocalShard(const host::ShardHost& local,
                                               const std::string& address) {
  {
    absl::MutexLock lock(&mutex_);
    address_ = address;
  }
  for (const std::string& warning : warnings_)
    RaiseAlarm(warning, coordinator::AlarmKind::kReminder);
  for (const std::string& alarm : alarms_) RaiseAlarm(alarm, coordinator::AlarmKind::kAlarm);
  return strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.OnShardAttached(0, config_.cluster.num_shards, local.instance_id(),
                                       local.server_incarnation(), address, now,
                                       local.journal_place());
  });
}

void CoordinatorRole::RaiseAlarm(const std::string& text, coordinator::AlarmKind kind) {
  strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.RaiseAlarm(text, now, kind);
  });
}

void CoordinatorRole::OnProcessEnded(const messages::WorkerLife& life) {
  strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnProcessEnded(life, now);
  });
}

void CoordinatorRole::OnConnectionEnded(const messages::WorkerLife& life, const std::string& peer,
                                        firewall::ConnectionState end) {
  const bool by_peer = end == firewall::ConnectionState::kClosed;
  logging::LogDebug("connection ended worker={} incarnation={} peer={} by_peer={}", life.worker,
                    life.incarnation, peer, by_peer);
  strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnConnectionEnded(life, peer, by_peer, now);
  });
}

void CoordinatorRole::OnStats(const shard::ShardStats& stats) {
  shards::JournalState journal = rpc::JournalOf(stats);
  // While the coordinator cannot write its journal, this server does not acknowledge contributions.
  // So this trouble is also reported as trouble of shard 0.
  if (journal.trouble.empty() && journal_ != nullptr) {
    journal.trouble = std::string(journal_->trouble().message());
  }
  strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnJournalState(0, journal, now);
    coordinator.OnPushSpace(0, stats.push_space, now);
  });
}

void CoordinatorRole::LookAtCheckpoint() {
  const absl::Time now = deps_.clock->Now();
  if (now < looks_at_) return;
  looks_at_ = now + kCheckpointLook;
  checkpoints_->Look();
}

std::optional<absl::Status> CoordinatorRole::outcome() {
  {
    absl::MutexLock lock(&mutex_);
    if (!lost_lock_.ok()) return lost_lock_;
  }
  std::optional<absl::Status> outcome =
      strand_.Run([](coordinator::Coordinator& coordinator,
                     absl::Time) -> std::optional<absl::Status> { return coordinator.outcome(); });
  // The outcome counts only when it is in the journal, because workers and servers are told it only
  // then.
  if (strand_.awaits_journal()) outcome.reset();
  return outcome;
}

bool CoordinatorRole::AwaitsServers() {
  return strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.AwaitsServers(now);
  });
}

bool CoordinatorRole::is_job_done() {
  return strand_.Run([](coordinator::Coordinator& coordinator, absl::Time) {
    return coordinator.phase() == coordinator::CoordinatorPhase::kDone;
  });
}

std::string CoordinatorRole::ending() {
  return strand_.Run([](coordinator::Coordinator& coordinator, absl::Time) {
    const std::optional<absl::StatusOr<coordinator::JobOutcome>> ending = coordinator.Ending();
    return ending.has_value() && ending->ok() ? (*ending)->text : "";
  });
}

std::string CoordinatorRole::lost_rounds() {
  return strand_.Run(
      [](coordinator::Coordinator& coordinator, absl::Time) { return coordinator.Lost(); });
}

v1::ClusterStatus CoordinatorRole::ReadStatus() {
  const status::ShardReading reading = read_local_();
  board_.SetReading(0, reading);
  OnStats(reading.stats);
  coordinator::ClusterSnapshot snapshot =
      strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
        return coordinator.Snapshot(now);
      });
  const job::JobSpec job = snapshot.job;
  v1::ClusterStatus status = rpc::ToProto(board_.Report(std::move(snapshot)), job);
  status.set_keeps_dialled_address(IsAddressGuessed(config_.network));
  rpc::SetPort(deps_.read_connections(), &status);
  const int64_t num_elements = static_cast<int64_t>(reading.stats.weight_bytes / sizeof(float));
  const int64_t shard_bytes =
      num_elements == 0
          ? 0
          : plan::EstimateShardMemory(job, num_elements, config_.limits.staging_bytes).peak();
  rpc::SetLimits(
      config_.limits,
      limits::BoundMemory(config_.limits, shard_bytes, !deps_.security->transport().is_plain()),
      machine::ReadOwnMemory(), *deps_.refusals, &status);
  status.set_wire(deps_.security->ToString());
  status.set_leader_lease(config_.cluster.leader_lease);
  status.set_journal_replica(reading.stats.journal_replica);
  status.set_durability(config_.durability.has_journal ? "journal" : "checkpoint");
  return status;
}

void CoordinatorRole::BeginDrain() { cluster_rpc_->BeginDrain(); }

void CoordinatorRole::SaveAndGoOn() {
  constexpr absl::Duration kPatience = absl::Minutes(10);
  rpc::TakeCheckpoint(
      strand_, kPatience, [](const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) {
        if (published.ok())
          return logging::LogInfo("saved the checkpoint that a signal asked for: {}",
                                  published->path);
        logging::LogWarn("could not save the checkpoint that a signal asked for: {}",
                         published.status().message());
      });
}

absl::StatusOr<checkpoints::PublishedCheckpoint> CoordinatorRole::SaveBeforeStop(
    absl::Duration patience, const std::function<bool()>& is_interrupted) {
  // Shared, because the strand may set it after this function has returned.
  struct Outcome {
    absl::Notification known;
    absl::StatusOr<checkpoints::PublishedCheckpoint> published = absl::UnknownError("");
  };
  const auto outcome = std::make_shared<Outcome>();
  rpc::TakeLastCheckpoint(
      strand_, /*asker=*/0, coordinator::ReasonOfStop(0), patience,
      [outcome](const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) {
        outcome->published = published;
        outcome->known.Notify();
      });
  const absl::Time until = deps_.clock->Now() + patience + kJournalPatience;
  while (!outcome->known.WaitForNotificationWithTimeout(kTick)) {
    const bool is_too_late = deps_.clock->Now() >= until;
    if (!is_interrupted() && !is_too_late) continue;
    const std::string unsaved = strand_.Run(
        [](coordinator::Coordinator& coordinator, absl::Time) { return coordinator.Unsaved(); });
    if (!is_too_late) return absl::CancelledError(unsaved);
    return absl::DeadlineExceededError(absl::StrCat(
        unsaved, ": the journal was not written within ", absl::FormatDuration(patience)));
  }
  return outcome->published;
}

absl::Status CoordinatorRole::AwaitAllServing(const std::function<bool()>& is_interrupted) {
  const absl::Time until = deps_.clock->Now() + kAttachPatience;
  while (true) {
    // If the job is over, everything has been saved already.
    if (const std::optional<absl::Status> ended = outcome(); ended.has_value()) return *ended;
    const absl::Status serving =
        strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
          if (coordinator.journal_loss().has_value()) {
            return absl::FailedPreconditionError(coordinator.journal_loss_reason());
          }
          return coordinator.CheckAllServing(now);
        });
    if (!absl::IsUnavailable(serving)) return serving;
    if (is_interrupted()) return absl::CancelledError("told to stop");
    if (deps_.clock->Now() >= until) return absl::DeadlineExceededError(serving.message());
    deps_.clock->Sleep(kTick);
  }
}

absl::StatusOr<checkpoints::PublishedCheckpoint> CoordinatorRole::SaveWithoutWorkers(
    const std::function<bool()>& is_interrupted) {
  // The time is long, because all weights may have to be written to a slow disk.
  constexpr absl::Duration kPatience = absl::Hours(24);
  BeginDrain();
  RETURN_IF_ERROR(AwaitAllServing(is_interrupted));
  strand_.Run([](coordinator::Coordinator& coordinator, absl::Time now) {
    return coordinator.EvictWorkers([](absl::string_view) { return true; },
                                    "the number of servers changes", now);
  });
  return SaveBeforeStop(kPatience, is_interrupted);
}

absl::Status CoordinatorRole::FinishCheckpointCommand(absl::Duration patience,
                                                      const std::function<bool()>& is_interrupted) {
  if (checkpoint_command_ == nullptr) return absl::OkStatus();
  return checkpoint_command_->Finish(patience, is_interrupted);
}

// Returns the status with which the streams to the other servers end. Its text says what is saved.
// The other servers show it if they are stopped before this server is back.
absl::Status CoordinatorRole::Farewell() {
  std::string text = "the coordinator is stopping";
  if (shards_ == nullptr) return absl::AbortedError(text);
  strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time) {
    const auto& saved = coordinator.LastSaveOutcome();
    if (!saved.has_value()) return;
    absl::StrAppend(&text, saved->ok() ? absl::StrCat("; all weights are saved in ", (*saved)->path)
                                       : absl::StrCat("; ", saved->status().message()));
  });
  return absl::AbortedError(text);  // see ShardAgent::connection()
}

void CoordinatorRole::Stop() {
  FinishCheckpointCommand(absl::ZeroDuration(), [] { return true; }).IgnoreError();
  // If there is no ClusterRpc, Start() has failed, and no other program has connected.
  if (cluster_rpc_ == nullptr) return;
  strand_.Stop();
  if (held_connections_ != nullptr) held_connections_->EndAll();
  admin_rpc_->EndExports();
  const absl::Status farewell = Farewell();
  if (shards_ != nullptr) shards_->EndAll(farewell);
  if (status_rpc_ != nullptr) status_rpc_->Stop(outcome().has_value());
  if (http_ != nullptr) http_->Stop();
  history_keeper_.reset();
}

void CoordinatorRole::OnEvent(shards::ShardEvent event) {
  // The coordinator logs the fault for operators, once per round. This line has each bucket.
  if (const auto* fault = std::get_if<sync::WorkerFault>(&event))
    logging::LogDebug("shard=0 {}", fault->text);
  strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnShardEvent(0, event, now);
  });
}

void CoordinatorRole::OnContributed(uint64_t server_incarnation, const messages::WorkerLife& life,
                                    Round round) {
  const uint64_t journal_end = local_->journal_place().end;
  strand_.ReportTo([&](coordinator::Coordinator& coordinator, absl::Time) -> std::vector<uint64_t> {
    logging::LogDebug("contribution received shard=0 worker={} incarnation={} round={}",
                      life.worker, life.incarnation, round);
    coordinator.NoteJournalEnd(0, journal_end);
    if (!coordinator.OnContributed(0, server_incarnation, life, round)) return {};
    return {rpc::ClusterRpc::KeyOf(life)};
  });
}

void CoordinatorRole::OnDropped(absl::string_view text) { logging::LogInfo("shard=0 {}", text); }

void CoordinatorRole::OnNotice(absl::string_view text) {
  notices_.Log(logging::LogLevel::kWarn, "shard", absl::StrCat("shard=0 ", text));
}

void CoordinatorRole::OnRestoreChosen(const absl::StatusOr<coordinator::RestoreChoice>& choice) {
  if (choice.ok()) TellCommandOfGoingBack(choice->source);
  strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnRestoreChosen(choice, now);
  });
}

void CoordinatorRole::TellCommandOfGoingBack(const shards::WeightsSource& source) {
  const auto* const checkpoint = std::get_if<shards::CheckpointSource>(&source);
  if (checkpoint_command_ == nullptr || checkpoint == nullptr) return;
  const std::string& path = checkpoint->directory;
  const std::string root = DirectoryOf(path);
  const DurabilityConfig& durability = config_.durability;
  const bool is_given = path == durability.resume_path;
  if (!is_given && root != durability.checkpoint_dir && root != durability.fallback_dir) return;
  // If the operator has given another name, copies under it would have no order.
  const auto entry = checkpoints::ParseCheckpointName(root, path.substr(path.rfind('/') + 1));
  if (!entry.has_value() || !entry->suffix.empty()) return;
  const absl::StatusOr<std::vector<std::string>> names =
      checkpoints::NamesSetAsideAfter(*deps_.disk, path);
  if (names.ok() && (is_given || !names->empty())) checkpoint_command_->Add(path, names);
}

void CoordinatorRole::OnCheckpointPublished(
    const std::string& directory,
    const absl::StatusOr<checkpoints::PublishedCheckpoint>& published) {
  if (published.ok() && checkpoint_command_ != nullptr) {
    checkpoint_command_->Add(published->path,
                             checkpoints::NamesSetAsideAfter(*deps_.disk, published->path));
  }
  strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnCheckpointPublished(directory, published, now);
  });
}

void CoordinatorRole::OnCheckpointGone(const std::string& path) {
  const bool is_running = strand_.Run([&](coordinator::Coordinator& coordinator, absl::Time now) {
    if (coordinator.phase() != coordinator::CoordinatorPhase::kRunning) return false;
    coordinator.RaiseAlarm(
        absl::StrCat("the newest checkpoint, ", path,
                     ", was removed or moved while the job runs, but a restart needs it. The "
                     "server writes another one now. Find the program that removes files there"),
        now, coordinator::AlarmKind::kAlarm, "newest checkpoint gone");
    return true;
  });
  constexpr absl::Duration kPatience = absl::Minutes(10);
  if (is_running) rpc::TakeCheckpoint(strand_, kPatience, [](const auto&) {});
}

void CoordinatorRole::OnCheckpointMarked(bool is_complete, const absl::Status& status) {
  strand_.Report([&](coordinator::Coordinator& coordinator, absl::Time now) {
    coordinator.OnCheckpointMarked(is_complete, status, now);
  });
}

}  // namespace lodestar::server
