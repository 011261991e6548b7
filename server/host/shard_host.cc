// SPDX-License-Identifier: Apache-2.0

#include "server/host/shard_host.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/checkpoints/trained_weights.h"
#include "common/logging/logging.h"
#include "common/params/model_spec_json.h"
#include "common/plan/shard_memory.h"
#include "common/runtime/overloaded.h"
#include "common/runtime/status_macros.h"
#include "common/storage/folder_lock.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/shard_files.h"
#include "server/host/journal_base.h"
#include "server/optimizer/optimizer_factory.h"

namespace lodestar::host {
namespace {

absl::Status LoadCheckpoint(storage::FileSystem& file_system, const std::string& directory,
                            const shard::ParameterShard::Config& config,
                            shard::ParameterShard& shard) {
  ASSIGN_OR_RETURN(const std::unique_ptr<checkpoint::CheckpointReader> reader,
                   checkpoint::CheckpointReader::Open(file_system, directory));
  RETURN_IF_ERROR(reader->ReadAs(config.layout));
  const std::vector<std::string> state_names =
      optimizer::MakeServerOptimizer(config.job)->state_names();
  RETURN_IF_ERROR(reader->CheckStateNames(state_names));
  // The state is read bucket by bucket, so that it is not in memory twice.
  return shard.Restore(
      [&](const params::Bucket& bucket) { return reader->ReadBucket(bucket.range, state_names); },
      reader->manifest().round);
}

absl::Status LoadTrained(storage::FileSystem& file_system, const std::string& path,
                         const params::Layout& layout, const params::ModelSpec& model,
                         shard::ParameterShard& shard) {
  ASSIGN_OR_RETURN(const std::unique_ptr<checkpoints::TrainedWeights> trained,
                   checkpoints::TrainedWeights::Open(file_system, path));
  RETURN_IF_ERROR(trained->CheckHeads(model));
  RETURN_IF_ERROR(trained->CheckTensors(layout));
  return shard.LoadWeights([&](params::ElementRange range, absl::Span<float> weights) {
    return trained->Read(layout, range, weights);
  });
}

absl::Status LoadFrom(storage::FileSystem& file_system, const shards::WeightsSource& source,
                      const shard::ParameterShard::Config& config, shard::ParameterShard& shard) {
  if (const auto* checkpoint = std::get_if<shards::CheckpointSource>(&source)) {
    return LoadCheckpoint(file_system, checkpoint->directory, config, shard);
  }
  if (const auto* file = std::get_if<shards::SafetensorsSource>(&source)) {
    const absl::Status loaded =
        LoadTrained(file_system, file->path, config.layout, config.job.model, shard);
    return absl::Status(loaded.code(),
                        loaded.ok() ? "" : "--init_from: " + std::string(loaded.message()));
  }
  if (std::holds_alternative<shards::ClientSource>(source)) {
    shard.AwaitClientWeights();
    return absl::OkStatus();
  }
  return shard.LoadInitial(config.job.seed);
}

// Returns true if data is lost that neither a later try nor an operator can bring back.
bool IsLossOfData(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status);
}

constexpr absl::string_view kServersStartAnew = "the servers start again";
}  // namespace

// AssignedObserver passes on what a shard reports, together with the incarnation of the servers
// that the shard belongs to.
class ShardHost::AssignedObserver final : public shard::ShardObserver {
 public:
  enum class Initially { kTelling, kMute };

  AssignedObserver(uint64_t server_incarnation, ShardReports* reports, Initially initially)
      : server_incarnation_(server_incarnation),
        reports_(reports),
        is_telling_(initially == Initially::kTelling) {}

  void Begin() { is_telling_ = true; }

  void OnDiverged(Round round, absl::string_view text) override {
    if (is_telling_) {
      reports_->OnEvent(shards::ShardDiverged{server_incarnation_, round, std::string(text)});
    }
  }
  void OnFault(const sync::WorkerFault& fault) override {
    if (is_telling_) reports_->OnEvent(fault);
  }
  void OnContributed(WorkerId worker, Incarnation incarnation, Round round) override {
    if (is_telling_) reports_->OnContributed(server_incarnation_, {worker, incarnation}, round);
  }
  void OnOutOfMemory(absl::string_view text) override {
    if (is_telling_) {
      reports_->OnEvent(
          shards::ShardFailing{server_incarnation_, absl::ResourceExhaustedError(text)});
    }
  }
  void OnDropped(absl::string_view text) override {
    if (is_telling_) reports_->OnDropped(text);
  }
  void OnNotice(absl::string_view text) override { reports_->OnNotice(text); }

 private:
  const uint64_t server_incarnation_;
  ShardReports* const reports_;
  std::atomic<bool> is_telling_;
};

void NormRelay::End() {
  std::map<Round, DoneCallback> ended;
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
    ended.swap(waiting_);
  }
  for (auto& [round, done] : ended) done(absl::AbortedError(kServersStartAnew));
}

void NormRelay::Submit(Round round, std::vector<double> segment_sums, DoneCallback done) {
  bool is_over = false;
  {
    absl::MutexLock lock(&mutex_);
    is_over = is_over_;
    if (!is_over) waiting_[round] = std::move(done);
  }
  if (is_over) return done(absl::AbortedError(kServersStartAnew));
  reports_->OnEvent(shards::ShardSquareSums{server_incarnation_, round, std::move(segment_sums)});
}

void NormRelay::OnTotal(Round round, double total_square_sum) {
  DoneCallback done;
  {
    absl::MutexLock lock(&mutex_);
    const auto waiting = waiting_.find(round);
    if (waiting == waiting_.end()) return;
    done = std::move(waiting->second);
    waiting_.erase(waiting);
  }
  done(total_square_sum);
}

ShardHost::ShardHost(int shard, const Deps& deps)
    : shard_(shard),
      deps_(deps),
      instance_id_(deps.instance_id),
      current_(absl::UnavailableError(
          absl::StrCat("shard ", shard, " has no assignment from the coordinator yet"))),
      follows_(deps.log == nullptr ? shards::CoordinatorRecord() : deps.log->follows()),
      writer_(deps.writer),
      commands_(deps.commands) {
  if (writer_ == nullptr) {
    writer_thread_ = std::make_unique<ThreadPool>(1, "shard-writer");
    writer_ = writer_thread_.get();
  }
  if (commands_ == nullptr) {
    commands_thread_ = std::make_unique<ThreadPool>(1, "shard-commands");
    commands_ = commands_thread_.get();
  }
}

ShardHost::~ShardHost() {
  Shutdown(absl::UnavailableError("the server stops"));
  commands_thread_.reset();
  // Breaks a reference cycle: a round that waits for its norm holds the shard, and the shard holds
  // the relay with the waiting round.
  if (norms_ != nullptr) norms_->End();
}

absl::StatusOr<std::shared_ptr<shard::ParameterShard>> ShardHost::shard() const {
  absl::MutexLock lock(&mutex_);
  return current_;
}

uint64_t ShardHost::server_incarnation() const {
  absl::MutexLock lock(&mutex_);
  return server_incarnation_;
}

bool ShardHost::is_serving() const {
  const auto current = shard();
  return current.ok() && (*current)->HasWeights();
}

shards::JournalPlace ShardHost::journal_place() const {
  shards::JournalPlace place;
  place.process_id = deps_.instance_id;
  {
    absl::MutexLock lock(&mutex_);
    place.follows = follows_;
    place.highest_round = highest_opened_;
  }
  if (deps_.log == nullptr) return place;
  place.first_segment = deps_.log->first_segment();
  place.end = deps_.log->durable();
  place.highest_round = std::max(place.highest_round, deps_.log->highest_round());
  return place;
}

shard::ShardStats ShardHost::stats() const {
  const auto current = shard();
  shard::ShardStats stats = current.ok() ? (*current)->stats() : shard::ShardStats{};
  if (deps_.log == nullptr) return stats;
  stats.journal_bytes = deps_.log->bytes_since_checkpoint();
  stats.journal_end = deps_.log->durable();
  stats.journal_trouble = std::string(deps_.log->trouble().message());
  if (!stats.journal_trouble.empty()) {
    stats.waiting_for =
        absl::StrCat("the journal cannot be written, so no contribution is acknowledged: ",
                     stats.journal_trouble);
  }
  return stats;
}

void ShardHost::Tick() {
  if (deps_.log != nullptr) deps_.log->Tick();
  if (const auto current = shard(); current.ok()) (*current)->Tick();
}

std::string ShardHost::PathToday(const std::string& path) const {
  if (deps_.log == nullptr || !deps_.log->beginning().has_value()) return path;
  return PathAfterMove(path, deps_.log->beginning()->base.run_folder, deps_.folders.checkpoint_dir);
}

absl::StatusOr<bool> ShardHost::IsJournalOfRun() const {
  if (deps_.log == nullptr || !deps_.log->beginning().has_value()) return true;
  return host::IsJournalOfRun(*deps_.file_system, deps_.log->beginning()->base, deps_.folders);
}

absl::StatusOr<bool> ShardHost::Recover() {
  if (deps_.log == nullptr || !deps_.log->beginning().has_value()) return false;
  const absl::Status recovered = TakeOver(*deps_.log->beginning());
  if (recovered.ok()) return true;
  if (!IsLossOfData(recovered)) return recovered;
  norms_.reset();
  deps_.log->Refuse();
  journal_refusal_ = absl::StrCat(
      "the server cannot continue from its journal: ", recovered.message(),
      ". Either all servers go back to the newest undamaged checkpoint, or the coordinator raises "
      "an alarm and waits for an operator. The journal's files are kept as *.damaged");
  deps_.reports->OnNotice(journal_refusal_);
  return false;
}

void ShardHost::GoOn() {
  // The event names the incarnation of the servers in the journal. If a newer assignment has come
  // meanwhile, the event does not report that assignment as loaded.
  deps_.reports->OnEvent(
      shards::ShardLoaded{deps_.log->beginning()->assignment.server_incarnation, absl::OkStatus()});
  recovered_observer_->Begin();
  if (const auto recovered = shard(); recovered.ok()) (*recovered)->EndReplay();
}

absl::Status ShardHost::TakeOver(const ShardLog::Beginning& beginning) {
  shards::AssignCommand assignment = beginning.assignment;
  ASSIGN_OR_RETURN(assignment.source, FindBase(*deps_.file_system, beginning.base, deps_.folders));
  norms_ = std::make_shared<NormRelay>(assignment.server_incarnation, deps_.reports);
  recovered_observer_ = std::make_shared<AssignedObserver>(
      assignment.server_incarnation, deps_.reports, AssignedObserver::Initially::kMute);
  ASSIGN_OR_RETURN(const std::shared_ptr<shard::ParameterShard> shard,
                   BuildShard(assignment, recovered_observer_));
  ASSIGN_OR_RETURN(
      const int64_t num_records,
      deps_.log->Replay([&](const shard::ShardRecord& record, absl::Span<const std::byte> payload) {
        return shard->Replay(record, payload);
      }));
  instance_id_ = beginning.instance_id;
  assignment_ = assignment;
  logging::LogInfo("shard={} continues from its journal: records={} round={}{}", shard_,
                   num_records, shard->stats().open_round.value(),
                   deps_.log->torn().empty() ? "" : absl::StrCat("; ", deps_.log->torn()));
  absl::MutexLock lock(&mutex_);
  server_incarnation_ = assignment.server_incarnation;
  current_ = shard;
  return absl::OkStatus();
}

bool ShardHost::Install(uint64_t server_incarnation,
                        absl::StatusOr<std::shared_ptr<shard::ParameterShard>> shard) {
  absl::MutexLock lock(&mutex_);
  if (is_shut_down_ || server_incarnation != server_incarnation_) return false;
  current_ = std::move(shard);
  return true;
}

void ShardHost::Shutdown(const absl::Status& status) {
  absl::StatusOr<std::shared_ptr<shard::ParameterShard>> old = status;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(is_shut_down_, true)) return;
    std::swap(current_, old);
  }
  if (old.ok()) (*old)->Shutdown(status);
}

void ShardHost::Follow(const shards::ShardCommand& command,
                       const shards::CoordinatorRecord& follows) {
  absl::MutexLock lock(&mutex_);
  if (follows.journal_id != 0) follows_ = follows;
  if (std::holds_alternative<shards::AssignCommand>(command)) highest_opened_ = -1;
  if (const auto* open = std::get_if<shards::OpenRoundCommand>(&command)) {
    highest_opened_ = std::max(highest_opened_, open->plan.round.value());
  }
}

void ShardHost::Obey(const shards::ShardCommand& command,
                     const shards::CoordinatorRecord& follows) {
  Follow(command, follows);
  if (deps_.log != nullptr) deps_.log->Follow(follows);
  if (const auto* assign = std::get_if<shards::AssignCommand>(&command)) return Assign(*assign);
  if (const auto* save = std::get_if<shards::SaveCommand>(&command)) return Save(*save);
  if (const auto* ask = std::get_if<shards::AskConnectionsCommand>(&command)) {
    return commands_->Schedule([this, life = ask->life] {
      deps_.reports->OnEvent(shards::ShardConnections{life, deps_.are_connections_closed(life)});
    });
  }
  commands_->Schedule([this, command] {
    const auto current = shard();
    if (!current.ok()) return;
    shard::ParameterShard& shard = **current;
    std::visit(Overloaded{
                   [&](const shards::OpenRoundCommand& open) { shard.OpenRound(open.plan); },
                   [&](const shards::CloseRoundCommand& close) {
                     shard.CloseRound(close.round, close.reported);
                   },
                   [&](const shards::MembersCommand& members) {
                     shard.SetMembers(members.view, members.members);
                     if (deps_.log != nullptr) deps_.log->OnFollowed();
                   },
                   [&](const shards::DropCommand& drop) {
                     shard.Drop(drop.worker, drop.incarnation, drop.reason);
                     if (deps_.log != nullptr) deps_.log->OnFollowed();
                   },
                   [&](const shards::PublishedCommand& published) { OnPublished(published); },
                   [&](const shards::NormTotalCommand& norm) {
                     norms_->OnTotal(norm.round, norm.total_square_sum);
                   },
                   [](const auto&) {},
               },
               command);
  });
}

void ShardHost::ReplaceWeights(Round round, absl::Span<const float> weights,
                               std::function<void(const absl::Status&)> done) {
  commands_->Schedule([this, round, weights, done = std::move(done)] {
    const auto current = shard();
    if (!current.ok()) return done(current.status());
    (*current)->ReplaceWeights(round, weights, done);
  });
}

void ShardHost::Assign(const shards::AssignCommand& command) {
  absl::StatusOr<std::shared_ptr<shard::ParameterShard>> current =
      absl::UnavailableError(absl::StrCat("shard ", shard_, " is loading its weights"));
  {
    absl::MutexLock lock(&mutex_);
    server_incarnation_ = command.server_incarnation;
    if (!is_shut_down_) std::swap(current_, current);
  }
  // Destroys the old shard later, on another thread. Its destructor waits for its updates, and an
  // update that diverges waits for the coordinator's lock. The coordinator holds that lock during
  // this call.
  commands_->Schedule([this, assignment = command, old = std::move(current)]() mutable {
    if (old.ok())
      (*old)->Shutdown(
          absl::AbortedError("the servers load weights again, so the worker must register again"));
    old = absl::UnavailableError("ended");  // frees the memory before another shard is built
    Load(assignment);
  });
}

void ShardHost::Load(const shards::AssignCommand& assignment) {
  assignment_ = assignment;
  if (norms_ != nullptr) norms_->End();
  norms_ = std::make_shared<NormRelay>(assignment.server_incarnation, deps_.reports);
  const absl::Status reaches = CheckPaths(assignment);
  const auto build = [&] {
    return BuildShard(
        assignment, std::make_shared<AssignedObserver>(assignment.server_incarnation, deps_.reports,
                                                       AssignedObserver::Initially::kTelling));
  };
  absl::StatusOr<std::shared_ptr<shard::ParameterShard>> built =
      reaches.ok() ? build() : absl::StatusOr<std::shared_ptr<shard::ParameterShard>>(reaches);
  const absl::Status status = built.status();
  if (!status.ok()) {
    built = absl::UnavailableError(
        absl::StrCat("shard ", shard_, " could not load its weights: ", status.message()));
  }
  const auto report = [reports = deps_.reports, incarnation = assignment.server_incarnation,
                       status] {
    reports->OnEvent(shards::ShardLoaded{incarnation, status});
  };
  // The assignment is logged before the shard can write any other record.
  const bool is_logged = deps_.log != nullptr && status.ok();
  if (is_logged) deps_.log->Begin(instance_id_, assignment, report);
  if (!Install(assignment.server_incarnation, std::move(built))) return;
  if (!is_logged) report();
}

absl::Status ShardHost::CheckPaths(const shards::AssignCommand& assignment) const {
  const shards::SharedFolder& folder = assignment.folder;
  if (deps_.fence != nullptr) {
    RETURN_IF_ERROR(deps_.fence->CheckFolder(folder));
    RETURN_IF_ERROR(deps_.fence->CheckSource(assignment.source));
  }
  return folder.claim_id == 0 ? absl::OkStatus()
                              : storage::CheckClaimIsIn(folder.path, folder.claim_id);
}

void ShardHost::OnPublished(const shards::PublishedCommand& published) {
  if (deps_.log == nullptr) return;
  const absl::Status allowed =
      deps_.fence == nullptr ? absl::OkStatus() : deps_.fence->CheckPublished(published.path);
  if (allowed.ok()) return deps_.log->OnPublished(published);
  deps_.reports->OnNotice(
      absl::StrCat("the server's journal still continues from the previous checkpoint, because the "
                   "new one cannot be used: ",
                   allowed.message()));
}

absl::StatusOr<std::shared_ptr<shard::ParameterShard>> ShardHost::BuildShard(
    const shards::AssignCommand& assignment, std::shared_ptr<AssignedObserver> observer) {
  const messages::ClusterMap& map = *assignment.map;
  if (shard_ >= static_cast<int>(map.servers.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shard ", shard_, " does not exist; the job's number of shards is ", map.servers.size()));
  }
  shard::ParameterShard::Config config;
  config.range = map.servers[shard_].range;
  config.layout = map.layout;
  config.job = assignment.job;
  config.last_of_others = Incarnation(assignment.server_incarnation);
  config.staging_bytes = deps_.staging_bytes;
  config.life_key = assignment.life_key;
  for (const params::Bucket& bucket : map.buckets) {
    if (bucket.shard == shard_) config.buckets.push_back(bucket);
  }
  ASSIGN_OR_RETURN(config.max_bytes, CheckResources(assignment, config.range.size()));
  shard::ParameterShard::Deps deps;
  deps.executor = deps_.executor;
  deps.norm_exchange = norms_;
  deps.observer = std::move(observer);
  deps.trace = deps_.trace;
  deps.journal = deps_.log;
  ASSIGN_OR_RETURN(std::shared_ptr<shard::ParameterShard> shard,
                   shard::ParameterShard::Create(config, std::move(deps)));
  RETURN_IF_ERROR(LoadFrom(*deps_.file_system, assignment.source, config, *shard));
  return shard;
}

absl::StatusOr<int64_t> ShardHost::CheckResources(const shards::AssignCommand& assignment,
                                                  int64_t num_elements) {
  const machine::HostMemory host = deps_.read_memory();
  // If the shard took more than the machine or the control group has, the system would end this
  // process.
  const int64_t max_bytes = host.total_bytes;
  // The estimate is compared with the available memory only once. Later, the available memory no
  // longer includes what this process has taken and will use again.
  if (std::exchange(has_checked_resources_, true)) return max_bytes;
  const plan::ShardMemory memory =
      plan::EstimateShardMemory(assignment.job, num_elements, deps_.staging_bytes);
  ASSIGN_OR_RETURN(const std::string warning, plan::CheckShardMemory(memory, host));
  logging::LogInfo("shard={} memory: {}", shard_, memory.Describe());
  if (!warning.empty()) deps_.reports->OnNotice(warning);
  const absl::Status files = assignment.folder.path.empty()
                                 ? absl::OkStatus()
                                 : checkpoint::CheckShardFileSizes(shard_, memory);
  if (!files.ok()) {
    deps_.reports->OnEvent(
        shards::ShardAlarm{absl::StrCat("THIS SERVER CANNOT WRITE CHECKPOINTS: ", files.message()),
                           shards::ShardAlarm::Ends::kNever});
  }
  return max_bytes;
}

void ShardHost::Save(const shards::SaveCommand& command) {
  commands_->Schedule([this, command] {
    shards::AssignCommand assignment = assignment_;
    if (command.folder_claim_id != 0) assignment.folder.claim_id = command.folder_claim_id;
    const auto write = [this, assignment = std::move(assignment),
                        directory = command.directory](absl::StatusOr<shard::ShardState> state) {
      writer_->Schedule([this, assignment, directory, state = std::move(state)] {
        WriteFiles(assignment, directory, state);
      });
    };
    const auto current = shard();
    if (!current.ok()) return write(current.status());
    const auto on_captured = [log = deps_.log, write](absl::StatusOr<shard::ShardState> state) {
      if (log == nullptr) return write(std::move(state));
      log->OnCaptured([write, state = std::move(state)] { write(state); });
    };
    // All contributions to the rounds before the save are over. This server may not know that,
    // because it may have missed one of two things:
    // - the command that opened the last of these rounds
    // - the loss of that round's last worker
    if (command.round.has_value()) (*current)->EndRoundsBefore(*command.round);
    if (deps_.log != nullptr) deps_.log->OnSave(command);
    (*current)->Snapshot(command.round, on_captured);
  });
}

void ShardHost::WriteFiles(const shards::AssignCommand& assignment, const std::string& directory,
                           const absl::StatusOr<shard::ShardState>& state) {
  const auto write = [&]() -> absl::StatusOr<std::string> {
    RETURN_IF_ERROR(state.status());
    if (deps_.fence != nullptr) {
      RETURN_IF_ERROR(deps_.fence->CheckSave(assignment.folder, directory));
    }
    RETURN_IF_ERROR(deps_.file_system->CreateDirectories(directory));
    checkpoint::ShardFilesSpec spec;
    spec.directory = directory;
    spec.shard = shard_;
    spec.num_shards = static_cast<int>(assignment.map->servers.size());
    spec.model = params::ModelSpecToJson(assignment.job.model);
    ASSIGN_OR_RETURN(
        const checkpoints::ShardManifest manifest,
        checkpoint::WriteShardFiles(*deps_.file_system, spec, assignment.map->layout, *state));
    return checkpoints::FormatShardManifest(manifest);
  };
  deps_.reports->OnEvent(shards::ShardSaved{assignment.server_incarnation, directory, write()});
}

}  // namespace lodestar::host
