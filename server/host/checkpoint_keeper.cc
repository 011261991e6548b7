// SPDX-License-Identifier: Apache-2.0

#include "server/host/checkpoint_keeper.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "common/checkpoints/checkpoint_directory.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/checkpoints/trained_weights.h"
#include "common/job/exchange_settings.h"
#include "common/job/job_loss.h"
#include "common/job/job_settings.h"
#include "common/job/proposed_settings.h"
#include "common/logging/logging.h"
#include "common/params/layout.h"
#include "common/params/model_spec_json.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "server/checkpoint/checkpoint_publisher.h"
#include "server/coordinator/coordinator_state_json.h"
#include "server/optimizer/optimizer_factory.h"

namespace lodestar::host {
namespace {

Json SettingsOf(const job::JobSpec& job) {
  Json settings = Json::object();
  for (const job::JobSetting& setting : job::JobSettings(job))
    settings[setting.flag] = setting.value;
  return settings;
}

// Returns the age of the checkpoint. The result is not set if the file system does not know it.
std::optional<absl::Duration> AgeOf(storage::FileSystem& file_system,
                                    const std::string& directory) {
  const std::optional<absl::Duration> age =
      file_system.AgeOf(absl::StrCat(directory, "/", checkpoints::kManifestName));
  if (!age.has_value()) return std::nullopt;
  return std::max(*age, absl::ZeroDuration());  // the clock of a file server may be ahead
}

// Returns a text such as ", written 3m12s ago", or an empty text if the age is not known.
std::string AgeText(std::optional<absl::Duration> age) {
  if (!age.has_value()) return "";
  const absl::Duration shown = absl::Trunc(std::max(*age, absl::Seconds(1)), absl::Seconds(1));
  return absl::StrCat(", written ", absl::FormatDuration(shown), " ago");
}

// Adds a note to `changes` if rollbacks or an operator have changed the learning rate, because
// --learning_rate alone does not give the rate then.
void NameLearningRateScale(const checkpoints::LedgerState& ledger, const job::JobSpec& job,
                           std::vector<checkpoint::SettingChange>& changes) {
  if (ledger.learning_rate_scale == 1.0) return;
  const std::string effect = absl::StrCat(
      "multiplied by ", ledger.learning_rate_scale,
      ledger.rollbacks == 0   ? ", by psctl set-learning-rate"
      : ledger.rollbacks == 1 ? ", after 1 rollback"
                              : absl::StrCat(", after ", ledger.rollbacks, " rollbacks"));
  constexpr char kFlag[] = "learning_rate";
  for (checkpoint::SettingChange& change : changes) {
    if (change.flag != kFlag) continue;
    absl::StrAppend(&change.effect, ", ", effect);
    return;
  }
  const Json settings = SettingsOf(job);
  const std::string value = settings.value(kFlag, "");
  changes.push_back({kFlag, value, value, effect});
}

// Returns "the learning rate of round 3 is 0.004, ..." if rollbacks or an operator have changed the
// rate, else an empty text.
std::string ScaledRateText(const checkpoints::LedgerState& ledger, const job::JobSpec& job,
                           Round round) {
  if (ledger.learning_rate_scale == 1.0 || job::ReducesOnly(job)) return "";
  const int64_t place = std::max<int64_t>(round.value() - ledger.lost_rounds, 0);
  const double scheduled = job.schedule.At(static_cast<double>(place));
  return absl::StrCat(
      "the learning rate of round ", round.value(), " is ", scheduled * ledger.learning_rate_scale,
      ". This is the rate of --learning_rate=", job.schedule.peak, " and its schedule, ", scheduled,
      ", multiplied by ", ledger.learning_rate_scale, ", a factor from ",
      ledger.rollbacks == 0 ? "psctl set-learning-rate" : "a rollback or psctl",
      ". To change it, run psctl set-learning-rate");
}

uint64_t TotalBytes(const checkpoints::Manifest& manifest) {
  uint64_t bytes = 0;
  for (const checkpoints::ShardManifest& shard : manifest.shards) {
    bytes += shard.weights.num_bytes + shard.optimizer.num_bytes;
  }
  return bytes;
}

std::vector<std::string> FoldersOf(const CheckpointKeeper::Config& config) {
  std::vector<std::string> folders;
  for (const std::string& folder : {config.root, config.fallback}) {
    if (!folder.empty()) folders.push_back(folder);
  }
  return folders;
}

std::string NotRemovedText(absl::string_view folder, const absl::Status& error) {
  return absl::StrCat("files that are not needed any more stay in ", folder,
                      " and fill its disk. Remove them (", error.message(), ")");
}

}  // namespace

CheckpointKeeper::CheckpointKeeper(Config config, Deps deps)
    : config_(std::move(config)),
      folders_(FoldersOf(config_)),
      deps_(std::move(deps)),
      lease_revision_(config_.lease_revision) {}

absl::Status CheckpointKeeper::OutrankCheckpoints() {
  for (const std::string& folder : folders_) {
    ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                     checkpoints::ListWholeCheckpoints(*deps_.file_system, folder));
    for (const checkpoints::CheckpointEntry& entry : entries) {
      const absl::StatusOr<checkpoints::Manifest> manifest =
          checkpoints::ReadManifest(*deps_.file_system, entry.path);
      if (!manifest.ok() || manifest->lease_revision == 0) continue;
      lease_revision_ = std::max(lease_revision_, manifest->lease_revision + 1);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointKeeper::CheckMayTouch(const std::string& path) const {
  const absl::StatusOr<checkpoints::Manifest> manifest =
      checkpoints::ReadManifest(*deps_.file_system, path);
  if (manifest.ok() && manifest->lease_revision > lease_revision_) {
    return absl::AbortedError(absl::StrCat(
        path, " was written by another server, which took the leader lease later (lease revision ",
        manifest->lease_revision, "; this server has ", lease_revision_, ")"));
  }
  if (const std::string other = OtherRunOf(path); !other.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " belongs to another run, whose folder is ", other));
  }
  return config_.confirm_folder(path);
}

bool CheckpointKeeper::IsInFallback(const std::string& path) const {
  return !config_.fallback.empty() && absl::StartsWith(path, config_.fallback + "/");
}

std::string CheckpointKeeper::OtherRunOf(const std::string& path) const {
  if (!IsInFallback(path)) return "";
  const absl::StatusOr<checkpoints::Manifest> manifest =
      checkpoints::ReadManifest(*deps_.file_system, path);
  if (!manifest.ok() || manifest->run_folder.empty()) return "";
  const bool is_ours = manifest->run_folder == config_.root ||
                       deps_.file_system->AreSame(manifest->run_folder, config_.root) ||
                       !deps_.file_system->Exists(manifest->run_folder);
  return is_ours ? "" : manifest->run_folder;
}

std::vector<std::string> CheckpointKeeper::OfOtherRuns() const {
  std::vector<std::string> paths;
  if (config_.fallback.empty()) return paths;
  const absl::StatusOr<std::vector<checkpoints::CheckpointEntry>> entries =
      checkpoints::ListWholeCheckpoints(*deps_.file_system, config_.fallback);
  if (!entries.ok()) return paths;
  for (const checkpoints::CheckpointEntry& entry : *entries) {
    if (!OtherRunOf(entry.path).empty()) paths.push_back(entry.path);
  }
  return paths;
}

std::vector<std::string> CheckpointKeeper::WithOthers(std::vector<std::string> paths) const {
  for (std::string& other : OfOtherRuns()) paths.push_back(std::move(other));
  return paths;
}

uint64_t CheckpointKeeper::NewServerIncarnation() {
  std::random_device random;
  const uint64_t milliseconds = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
  return (milliseconds << 16) | (random() & 0xffff);
}

void CheckpointKeeper::Do(coordinator::CheckpointTask task) {
  deps_.executor->Schedule([this, task = std::move(task)] {
    std::visit([this](const auto& kind) { Carry(kind); }, task);
  });
}

void CheckpointKeeper::Watch(std::string path) {
  deps_.executor->Schedule([this, path = std::move(path)] { watched_path_ = path; });
}

void CheckpointKeeper::Look() {
  if (is_looking_.exchange(true)) return;
  deps_.executor->Schedule([this] {
    // PrepareRollBack() may have left the checkpoint under the name with kReplacedSuffix.
    const bool is_there =
        watched_path_.empty() ||
        deps_.file_system->Exists(absl::StrCat(watched_path_, "/", checkpoints::kManifestName)) ||
        deps_.file_system->Exists(absl::StrCat(watched_path_, checkpoints::kReplacedSuffix));
    is_looking_ = false;
    if (is_there) return;
    // If the folder belongs to another server now, that server may have removed the checkpoint. So
    // nothing is reported.
    const absl::Status may_touch = CheckMayTouch(watched_path_);
    if (!may_touch.ok() && !absl::IsNotFound(may_touch)) return;
    deps_.reports->OnCheckpointGone(watched_path_);
  });
}

void CheckpointKeeper::Carry(const checkpoints::CheckpointRecord& record) {
  const absl::StatusOr<checkpoints::PublishedCheckpoint> published = Publish(record);
  has_published_ |= published.ok();
  if (published.ok()) {
    watched_path_ = published->path;
    if (deps_.file_system->AreSame(published->path, config_.resume_path)) {
      is_path_left_behind_ = false;  // a newer checkpoint has replaced it
    } else {
      is_path_left_behind_ |= RoundOfResumePath() > record.round;
    }
  }
  deps_.reports->OnCheckpointPublished(record.directory, published);
}

absl::StatusOr<checkpoints::PublishedCheckpoint> CheckpointKeeper::Publish(
    const checkpoints::CheckpointRecord& record) {
  const auto may_touch = [this](const std::string& path) { return CheckMayTouch(path); };
  checkpoints::Manifest manifest;
  manifest.round = record.round;
  manifest.layout = record.layout;
  for (const std::string& part : record.manifest_parts) {
    ASSIGN_OR_RETURN(manifest.shards.emplace_back(), checkpoints::ParseShardManifest(part));
  }
  ASSIGN_OR_RETURN(manifest.coordinator,
                   ParseJson(coordinator::CoordinatorStateToJson(record.state)));
  manifest.settings = SettingsOf(record.job);
  for (const job::JobSetting& setting : config_.saving)
    manifest.settings[setting.flag] = setting.value;
  manifest.model = params::ModelSpecToJson(record.job.model);
  manifest.lease_revision = lease_revision_;
  manifest.journal = record.journal;
  if (IsInFallback(record.directory)) manifest.run_folder = config_.root;
  ASSIGN_OR_RETURN(
      std::string path,
      checkpoint::PublishCheckpoint(*deps_.file_system, record.directory, manifest, may_touch));
  std::string alarm = TidyUp(path, record.round);
  return checkpoints::PublishedCheckpoint{std::move(path), record.round, TotalBytes(manifest),
                                          std::move(alarm)};
}

std::string CheckpointKeeper::TidyUp(const std::string& published, Round round) const {
  const auto may_touch = [this](const std::string& path) { return CheckMayTouch(path); };
  std::vector<std::string> alarms;
  for (const std::string& folder : folders_) {
    // Removes the files of failed saves, including files that a shard wrote after its save had
    // failed.
    absl::Status tidied = checkpoint::RemoveUnfinished(*deps_.file_system, folder, may_touch);
    if (absl::StartsWith(published, folder + "/")) {
      tidied.Update(checkpoint::RemoveOld(*deps_.file_system, folder, round, config_.retention,
                                          WithOthers({config_.resume_path, awaited_path_}),
                                          may_touch));
    }
    if (!tidied.ok()) alarms.push_back(NotRemovedText(folder, tidied));
    const absl::Status aside = checkpoint::SetAsideNewer(
        *deps_.file_system, folder, round, WithOthers({config_.resume_path}), may_touch);
    if (aside.ok()) continue;
    alarms.push_back(
        absl::StrCat("checkpoints of an earlier run with more rounds stay in ", folder,
                     ", and a restart would resume from the newest of them. Move them away (",
                     aside.message(), ")"));
  }
  return absl::StrJoin(alarms, "; ");
}

void CheckpointKeeper::Carry(const coordinator::DiscardTask& task) {
  checkpoint::DiscardCheckpoint(*deps_.file_system, task.directory);
}

absl::Status CheckpointKeeper::CheckSettings() const {
  if (!config_.resume_path.empty()) {
    const absl::StatusOr<checkpoints::Manifest> manifest =
        checkpoints::ReadManifest(*deps_.file_system, config_.resume_path);
    if (!manifest.ok()) {
      return absl::Status(
          manifest.status().code(),
          absl::StrCat("--resume=", config_.resume_path, ": ", manifest.status().message(),
                       "; give latest, never or the path of one checkpoint"));
    }
    ASSIGN_OR_RETURN(const std::vector<checkpoint::SettingChange> changes,
                     Compare(*manifest, config_.resume_path, config_.accepts_higher_rate));
    return checkpoint::CheckNoneRefused(changes, *manifest, config_.resume_path);
  }
  if (!config_.resume) return CheckInitFrom();
  std::string newest_path;
  std::optional<checkpoints::Manifest> newest;
  // Newest of the checkpoints that this process cannot read, but that may be complete.
  std::optional<std::pair<Round, absl::Status>> unread;
  for (const std::string& folder : folders_) {
    ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                     ListToRestore(folder));
    for (const checkpoints::CheckpointEntry& entry : entries) {
      absl::StatusOr<checkpoints::Manifest> manifest =
          checkpoints::ReadManifest(*deps_.file_system, entry.path);
      if (checkpoints::MayBeWhole(manifest.status()) &&
          (!unread.has_value() || entry.round > unread->first)) {
        unread.emplace(entry.round, checkpoint::UnreadCheckpoint(entry.path, manifest.status()));
      }
      if (!manifest.ok() || (newest.has_value() && newest->round >= manifest->round)) continue;
      newest_path = entry.path;
      newest = *std::move(manifest);
    }
  }
  if (unread.has_value() && (!newest.has_value() || unread->first >= newest->round)) {
    return unread->second;
  }
  if (!newest.has_value()) return CheckInitFrom();
  ASSIGN_OR_RETURN(const std::vector<checkpoint::SettingChange> changes,
                   Compare(*newest, newest_path, config_.accepts_higher_rate));
  return checkpoint::CheckNoneRefused(changes, *newest, newest_path);
}

absl::Status CheckpointKeeper::CheckInitFrom() const {
  const std::string& path = config_.init_from;
  if (path.empty()) return absl::OkStatus();
  if (!deps_.file_system->Exists(path)) {
    if (const absl::Status there = CheckIsThere(path); !there.ok()) {
      return absl::Status(there.code(), absl::StrCat("--init_from: ", there.message(),
                                                     "; give a checkpoint, a file of psctl export, "
                                                     "or the folder of a GPT-2 of Hugging Face"));
    }
  }
  // Only a safetensors file is checked now. The check of a checkpoint would read all of its data.
  if (!absl::EndsWith(path, ".safetensors")) return absl::OkStatus();
  const absl::Status fits = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const params::Layout layout, params::BuildLayout(config_.job.model));
    ASSIGN_OR_RETURN(const std::unique_ptr<checkpoints::TrainedWeights> trained,
                     checkpoints::TrainedWeights::Open(*deps_.file_system, path));
    RETURN_IF_ERROR(trained->CheckHeads(config_.job.model));
    return trained->CheckTensors(layout);
  }();
  return absl::Status(fits.code(), fits.ok() ? "" : absl::StrCat("--init_from: ", fits.message()));
}

absl::StatusOr<job::JobSpec> CheckpointKeeper::JobFrom(const checkpoints::Manifest& manifest,
                                                       const std::string& path) const {
  const bool is_client =
      std::holds_alternative<params::ClientModelSpec>(config_.job.model.architecture);
  const job::OpenSettings& open = config_.open_settings;
  if (!is_client && !open.any()) return config_.job;
  std::vector<job::JobSetting> saved;
  for (const auto& [flag, value] : manifest.settings.items()) {
    saved.push_back({flag, value.is_string() ? value.get<std::string>() : FormatJson(value)});
  }
  if (is_client) {
    const job::JobSpec job =
        job::Settle(config_.job, config_.given, job::ProposedBySaved(saved)).job;
    // If the settings of `job` contradict each other, the saved job did not have all of them. Then
    // the caller compares the checkpoint with the job that the operator asked for.
    return job::ValidateJobSpec(job).ok() ? job : config_.job;
  }
  const auto contradicts = [&path](const absl::Status& why) {
    return absl::FailedPreconditionError(
        absl::StrCat("the exchange settings of checkpoint ", path,
                     " contradict the flags that are given with auto: ", why.message(),
                     ". Give the flags of the checkpoint. To measure again, start a new run with "
                     "--resume=never --init_from=",
                     path));
  };
  const absl::StatusOr<job::JobSpec> chosen = job::WithExchangeOf(saved, config_.job);
  if (!chosen.ok()) return contradicts(chosen.status());
  const std::vector<job::Mode> modes = job::ModesToChooseFrom();
  // If the saved job has a mode that `auto` cannot choose, the job stays as the operator asked for
  // it. The comparison of settings then refuses the checkpoint.
  if (std::count(modes.begin(), modes.end(), chosen->mode) == 0) return config_.job;
  const job::JobSpec job = job::InRounds(job::WithOpenOf(*chosen, config_.job, open), open);
  if (const absl::Status valid = job::ValidateJobSpec(job); !valid.ok()) return contradicts(valid);
  // The rounds that are done count towards --rounds, so a round must still have as many steps as
  // before.
  if (open.are_lengths_in_steps() && job::StepsPerRound(job) != job::StepsPerRound(*chosen)) {
    return contradicts(absl::FailedPreconditionError(
        absl::StrCat("a round of the checkpoint has ", job::StepsPerRound(*chosen),
                     " steps, but a round of this job would have ", job::StepsPerRound(job),
                     ". With auto, --rounds counts steps, so the number of rounds would change")));
  }
  const auto saved_rounds =
      std::find_if(saved.begin(), saved.end(),
                   [](const job::JobSetting& setting) { return setting.flag == "rounds"; });
  int64_t total_rounds = 0;
  const bool had_rounds_left = saved_rounds != saved.end() &&
                               absl::SimpleAtoi(saved_rounds->value, &total_rounds) &&
                               total_rounds > manifest.round.value();
  if (had_rounds_left && job.schedule.total_rounds <= manifest.round.value()) {
    return contradicts(absl::FailedPreconditionError(absl::StrCat(
        "--rounds=", config_.job.schedule.total_rounds, " counts steps with auto. These steps are ",
        job.schedule.total_rounds, " rounds, but the checkpoint has already done ",
        manifest.round.value(), " of ", total_rounds, " rounds")));
  }
  return job;
}

checkpoint::RateAtResume CheckpointKeeper::RateOf(const checkpoints::Manifest& manifest,
                                                  bool may_rise) const {
  checkpoint::RateAtResume rate = {.place = manifest.round.value(),
                                   .is_given = config_.given.contains("learning_rate"),
                                   .may_rise = may_rise};
  const auto state = coordinator::CoordinatorStateFromJson(FormatJson(manifest.coordinator));
  if (state.ok()) {
    rate.place = std::max<int64_t>(rate.place - state->ledger.lost_rounds, 0);
    rate.scale = state->ledger.learning_rate_scale;
    rate.scale_by_operators = state->ledger.scale_by_operators;
  }
  return rate;
}

absl::StatusOr<std::vector<checkpoint::SettingChange>> CheckpointKeeper::Compare(
    const checkpoints::Manifest& manifest, const std::string& path, bool may_rate_rise) const {
  ASSIGN_OR_RETURN(const job::JobSpec job, JobFrom(manifest, path));
  return checkpoint::CompareSettings(manifest, job,
                                     optimizer::MakeServerOptimizer(job)->state_names(),
                                     RateOf(manifest, may_rate_rise), config_.saving);
}

void CheckpointKeeper::Carry(const coordinator::SetAsideTask& task) {
  set_aside_ = absl::OkStatus();
  watched_path_.clear();  // a rollback chooses another checkpoint next
  // If the run does not start from its folders, the checkpoints there belong to other runs and
  // stay.
  if (!StartsFromFolders()) return;
  is_path_left_behind_ |= RoundOfResumePath() >= task.first_bad;
  const Round last_good(task.first_bad.value() - 1);
  for (const std::string& folder : folders_) {
    set_aside_.Update(checkpoint::SetAsideNewer(
        *deps_.file_system, folder, last_good, WithOthers({config_.resume_path}),
        [this](const std::string& path) { return CheckMayTouch(path); }));
  }
  if (set_aside_.ok()) return;
  set_aside_ = absl::Status(
      set_aside_.code(),
      absl::StrCat("checkpoints of round ", task.first_bad.value(), " and later ", task.why,
                   " and cannot be set aside: ", set_aside_.message(), "; move them away"));
  logging::LogWarn("{}", set_aside_.message());
}

void CheckpointKeeper::Carry(const coordinator::MarkTask& task) {
  // If another server has the folder now, that server itself marks which checkpoint is complete.
  absl::Status marked = CheckMayTouch(task.path);
  if (marked.ok()) {
    marked = task.is_complete
                 ? checkpoints::MarkComplete(*deps_.file_system, task.path)
                 : checkpoints::MarkIncomplete(*deps_.file_system, task.path,
                                               task.follows.journal_id, task.follows.number);
  }
  // If an operator has removed the checkpoint, its mark is not needed any more.
  if (absl::IsNotFound(marked)) marked = absl::OkStatus();
  deps_.reports->OnCheckpointMarked(task.is_complete, marked);
}

void CheckpointKeeper::Carry(const coordinator::ChooseRestoreTask& task) {
  absl::StatusOr<coordinator::RestoreChoice> choice = Choose();
  const auto* source =
      choice.ok() ? std::get_if<shards::CheckpointSource>(&choice->source) : nullptr;
  if (task.accepts_loss && source != nullptr) {
    const absl::Status marked = checkpoints::MarkComplete(*deps_.file_system, source->directory);
    if (marked.ok()) {
      choice->is_complete = true;
    } else {
      choice = absl::Status(
          marked.code(),
          absl::StrCat(source->directory, " cannot be marked as the checkpoint to go back to: ",
                       marked.message(), "; start again when its disk can be written"));
    }
  }
  if (const std::vector<std::string> others = OfOtherRuns();
      choice.ok() && !has_chosen_ && !others.empty()) {
    absl::StrAppend(&choice->alarm, choice->alarm.empty() ? "" : "; ", others.front(),
                    " in --fallback_dir belongs to the run in ", OtherRunOf(others.front()),
                    ", so this run does not use it. Give each run a separate --fallback_dir");
  }
  has_chosen_ = true;
  awaited_path_.clear();
  watched_path_ = source == nullptr ? "" : source->directory;
  if (choice.ok()) choice->server_incarnation = deps_.new_server_incarnation();
  deps_.reports->OnRestoreChosen(choice);
}

bool CheckpointKeeper::StartsFromFolders() const {
  return has_published_ || (config_.resume && config_.resume_path.empty());
}

std::optional<Round> CheckpointKeeper::RoundOfResumePath() const {
  if (config_.resume_path.empty()) return std::nullopt;
  const absl::StatusOr<checkpoints::Manifest> manifest =
      checkpoints::ReadManifest(*deps_.file_system, config_.resume_path);
  return manifest.ok() ? std::optional(manifest->round) : std::nullopt;
}

std::vector<std::string> CheckpointKeeper::LeftBehind() const {
  if (!is_path_left_behind_) return {};
  return {config_.resume_path};
}

absl::StatusOr<coordinator::RestoreChoice> CheckpointKeeper::Choose() {
  for (const std::string& folder : folders_) {
    const absl::Status removed = checkpoint::RemoveUnfinished(
        *deps_.file_system, folder,
        [this](const std::string& path) { return CheckMayTouch(path); });
    if (!removed.ok()) logging::LogWarn("{}", NotRemovedText(folder, removed));
  }
  if (!StartsFromFolders()) return config_.resume_path.empty() ? Anew() : FromPath();
  if (config_.root.empty()) return FreshStart();
  RETURN_IF_ERROR(set_aside_);
  ASSIGN_OR_RETURN(std::optional<checkpoint::FoundCheckpoint> found, FindNewest());
  if (found.has_value()) {
    for (const std::string& path : LeftBehind()) {
      found->alarms.push_back(
          absl::StrCat(path,
                       " has undone rounds, but keeps its name because --resume names it. A server "
                       "with this flag or with --resume=latest may continue from it. Remove the "
                       "flag, and move the checkpoint away"));
    }
    return FromCheckpoint(*found);
  }
  coordinator::RestoreChoice choice = FreshStart();
  ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                   checkpoints::ListCheckpoints(*deps_.file_system, config_.root));
  const auto aside =
      std::find_if(entries.begin(), entries.end(), [](const checkpoints::CheckpointEntry& entry) {
        return entry.suffix == checkpoints::kAbandonedSuffix;
      });
  if (aside != entries.end()) {
    choice.alarm =
        absl::StrCat("the job begins at round 0, because all checkpoints in ", config_.root,
                     " were set aside (renamed to *.abandoned). To start from one of them, give "
                     "--resume=PATH; the one with most rounds is ",
                     aside->path);
  } else if (!config_.crashed_holder.empty() && !has_chosen_) {
    choice.alarm = absl::StrCat("the job begins at round 0, because ", config_.crashed_holder,
                                " ended before its first checkpoint in ", config_.root);
  } else if (config_.init_from.empty() && !has_chosen_) {
    choice.empty_folder = config_.root;
  }
  return choice;
}

absl::StatusOr<coordinator::RestoreChoice> CheckpointKeeper::FromPath() const {
  checkpoint::FoundCheckpoint found = {config_.resume_path, {}, {}};
  ASSIGN_OR_RETURN(found.manifest,
                   checkpoints::VerifyCheckpoint(*deps_.file_system, config_.resume_path));
  for (const std::string& folder : folders_) {
    ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> others, ListToRestore(folder));
    if (others.empty() ||
        checkpoints::WrittenRound(*deps_.file_system, others.front()) <= found.manifest.round)
      continue;
    found.alarms.push_back(
        absl::StrCat("the job starts from round ", found.manifest.round.value(),
                     ", because of --resume=", config_.resume_path,
                     ", although later checkpoints exist. The newest is ", others.front().path,
                     "; it is renamed to *.abandoned when this run writes its first checkpoint. To "
                     "continue from it instead, give --resume=latest"));
  }
  return FromCheckpoint(found);
}

absl::StatusOr<coordinator::RestoreChoice> CheckpointKeeper::Anew() const {
  coordinator::RestoreChoice choice = FreshStart();
  if (config_.root.empty()) return choice;
  ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> others,
                   checkpoints::ListWholeCheckpoints(*deps_.file_system, config_.root));
  if (others.empty()) return choice;
  choice.alarm = absl::StrCat(
      "the job begins at round 0, because of --resume=never, although there are checkpoints of an "
      "earlier run. The newest is ",
      others.front().path,
      "; it is renamed to *.abandoned when this run writes its first checkpoint");
  return choice;
}

absl::StatusOr<std::optional<checkpoint::FoundCheckpoint>> CheckpointKeeper::FindNewest() const {
  absl::StatusOr<std::optional<checkpoint::FoundCheckpoint>> found =
      checkpoint::FindNewestCheckpoint(*deps_.file_system, config_.root, LeftBehind());
  if (config_.fallback.empty() || checkpoints::MayBeWhole(found.status())) return found;
  absl::StatusOr<std::optional<checkpoint::FoundCheckpoint>> in_fallback =
      checkpoint::FindNewestCheckpoint(*deps_.file_system, config_.fallback,
                                       WithOthers(LeftBehind()));
  if (checkpoints::MayBeWhole(in_fallback.status())) return in_fallback;
  if (!in_fallback.ok()) {
    // A damaged checkpoint in one of the two folders must not prevent the use of a complete
    // checkpoint in the other.
    if (!found.ok() || !found->has_value()) return in_fallback;
    (*found)->alarms.emplace_back(in_fallback.status().message());
    return found;
  }
  std::optional<checkpoint::FoundCheckpoint> spare = *std::move(in_fallback);
  if (!spare.has_value()) return found;
  std::vector<std::string> alarms;
  if (!found.ok()) {
    alarms.emplace_back(found.status().message());
  } else if (found->has_value()) {
    const checkpoints::Manifest& in_root = (*found)->manifest;
    const bool counts_more = checkpoints::IsOvertaken(spare->manifest, in_root) ||
                             (in_root.round >= spare->manifest.round &&
                              !checkpoints::IsOvertaken(in_root, spare->manifest));
    if (counts_more) return found;
    alarms = (*found)->alarms;
  }
  alarms.push_back(
      absl::StrCat("the job continues from a checkpoint in --fallback_dir, which is newer than "
                   "those in --checkpoint_dir: ",
                   spare->directory));
  spare->alarms.insert(spare->alarms.begin(), alarms.begin(), alarms.end());
  return spare;
}

absl::Status CheckpointKeeper::CheckCanSetAside(Round last_good) const {
  for (const std::string& folder : folders_) {
    const absl::Status can = checkpoint::CheckCanSetAside(
        *deps_.file_system, folder, last_good, WithOthers({config_.resume_path}),
        [this](const std::string& path) { return CheckMayTouch(path); });
    if (can.ok()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the job does not go back, because a later checkpoint cannot be set aside: ", can.message(),
        ". Let the server rename that checkpoint, or move it away, and give the order "
        "again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<checkpoints::PublishedCheckpoint> CheckpointKeeper::PrepareRollBack(Round round) {
  absl::StatusOr<checkpoints::PublishedCheckpoint> found = absl::UnknownError("");
  absl::Notification done;
  deps_.executor->Schedule([&] {
    found = FindUpTo(round);
    if (found.ok()) {
      if (const absl::Status can = CheckCanSetAside(round); !can.ok()) found = can;
    }
    // The checkpoint must stay until the caller uses it, even if another one is published before.
    if (found.ok()) awaited_path_ = found->path;
    done.Notify();
  });
  done.WaitForNotification();
  return found;
}

absl::StatusOr<std::vector<checkpoints::CheckpointEntry>> CheckpointKeeper::ListToRestore(
    const std::string& folder) const {
  ASSIGN_OR_RETURN(std::vector<checkpoints::CheckpointEntry> entries,
                   checkpoints::ListWholeCheckpoints(*deps_.file_system, folder));
  std::erase_if(entries, [this](const checkpoints::CheckpointEntry& entry) {
    return !OtherRunOf(entry.path).empty();
  });
  checkpoints::TakeOutOvertaken(*deps_.file_system, entries);
  return entries;
}

absl::StatusOr<std::vector<checkpoints::CheckpointEntry>> CheckpointKeeper::ListToGoBackTo() const {
  std::vector<checkpoints::CheckpointEntry> all;
  if (!StartsFromFolders()) return all;
  for (const std::string& folder : folders_) {
    ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                     ListToRestore(folder));
    for (const checkpoints::CheckpointEntry& entry : entries) {
      if (is_path_left_behind_ && deps_.file_system->AreSame(entry.path, config_.resume_path))
        continue;
      all.push_back(entry);
      all.back().round = checkpoints::WrittenRound(*deps_.file_system, entry);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const checkpoints::CheckpointEntry& a,
                      const checkpoints::CheckpointEntry& b) { return a.round > b.round; });
  return all;
}

absl::StatusOr<checkpoints::PublishedCheckpoint> CheckpointKeeper::FindUpTo(Round round) const {
  ASSIGN_OR_RETURN(std::vector<checkpoints::CheckpointEntry> entries, ListToGoBackTo());
  const std::string oldest =
      entries.empty() ? "no checkpoint was written"
                      : absl::StrCat("the oldest is of round ", entries.back().round.value(),
                                     " (--checkpoint_keep sets how many are kept)");
  std::erase_if(entries,
                [round](const checkpoints::CheckpointEntry& entry) { return entry.round > round; });
  if (entries.empty()) {
    return absl::NotFoundError(absl::StrCat("there is no checkpoint of round ", round.value(),
                                            " or earlier to go back to; ", oldest));
  }
  std::vector<std::string> damages;
  for (const checkpoints::CheckpointEntry& entry : entries) {
    const absl::Status verified =
        checkpoints::VerifyCheckpoint(*deps_.file_system, entry.path).status();
    if (!verified.ok()) {
      damages.push_back(absl::StrCat(entry.path, " cannot be used: ", verified.message()));
      continue;
    }
    // An intact checkpoint of the newest round will do, even if another one of that round is
    // damaged.
    if (entry.round == entries.front().round)
      return checkpoints::PublishedCheckpoint{entry.path, entry.round};
    return absl::DataLossError(
        absl::StrCat(absl::StrJoin(damages, "; "),
                     "; nothing was changed. The newest undamaged checkpoint before ",
                     damages.size() == 1 ? "that one" : "those", " is ", entry.path,
                     "; give round ", entry.round.value()));
  }
  return absl::DataLossError(absl::StrCat(
      absl::StrJoin(damages, "; "),
      "; nothing was changed. No older checkpoint is undamaged; restore one from a copy"));
}

absl::StatusOr<std::optional<shards::KnownCheckpoint>> CheckpointKeeper::Newest() const {
  ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries, ListToGoBackTo());
  for (const checkpoints::CheckpointEntry& entry : entries) {
    absl::StatusOr<checkpoints::Manifest> manifest =
        checkpoints::ReadManifest(*deps_.file_system, entry.path);
    if (!manifest.ok()) continue;
    const auto state = coordinator::CoordinatorStateFromJson(FormatJson(manifest->coordinator));
    if (!state.ok()) continue;
    return shards::KnownCheckpoint{entry.path, manifest->round, state->server_incarnation,
                                   std::move(manifest->journal)};
  }
  return std::nullopt;
}

absl::StatusOr<uint64_t> CheckpointKeeper::LastServerIncarnation() const {
  uint64_t last = 0;
  for (const std::string& folder : folders_) {
    ASSIGN_OR_RETURN(const std::vector<checkpoints::CheckpointEntry> entries,
                     checkpoints::ListWholeCheckpoints(*deps_.file_system, folder));
    for (const checkpoints::CheckpointEntry& entry : entries) {
      const absl::StatusOr<checkpoints::Manifest> manifest =
          checkpoints::ReadManifest(*deps_.file_system, entry.path);
      if (!manifest.ok()) continue;
      const auto state = coordinator::CoordinatorStateFromJson(FormatJson(manifest->coordinator));
      if (state.ok()) last = std::max(last, state->server_incarnation);
    }
  }
  return last;
}

absl::StatusOr<coordinator::RestoreChoice> CheckpointKeeper::FromCheckpoint(
    const checkpoint::FoundCheckpoint& found) const {
  const std::string& path = found.directory;
  const checkpoints::Manifest& manifest = found.manifest;
  ASSIGN_OR_RETURN(std::vector<checkpoint::SettingChange> changes,
                   Compare(manifest, path, config_.accepts_higher_rate || has_published_));
  RETURN_IF_ERROR(checkpoint::CheckNoneRefused(changes, manifest, path));
  if (!config_.init_from.empty()) {
    changes.push_back(
        {"init_from", "", config_.init_from,
         "not used, because the weights come from the checkpoint; --resume=never uses it"});
  }
  coordinator::RestoreChoice choice;
  const std::optional<absl::Duration> age = AgeOf(*deps_.file_system, path);
  choice.source = shards::CheckpointSource{
      .directory = path, .bytes = TotalBytes(manifest), .age = age.value_or(absl::ZeroDuration())};
  choice.layout = manifest.layout;
  ASSIGN_OR_RETURN(const job::JobSpec job, JobFrom(manifest, path));
  if (config_.open_settings.any() ||
      std::holds_alternative<params::ClientModelSpec>(job.model.architecture)) {
    choice.job = job;
  }
  ASSIGN_OR_RETURN(choice.state,
                   coordinator::CoordinatorStateFromJson(FormatJson(manifest.coordinator)));
  const checkpoint::RateAtResume rate_before = RateOf(manifest, /*may_rise=*/true);
  if (checkpoint::DropsOrderedRate(changes, rate_before)) {
    choice.state->ledger.learning_rate_scale = checkpoint::ScaleAfter(changes, rate_before);
    choice.state->ledger.scale_by_operators = 1.0;
    // Only a new process uses the rate in the checkpoint.
    if (!has_chosen_) {
      logging::LogWarn("{}", checkpoint::DroppedRateText(changes, manifest, job, rate_before));
    }
  }
  NameLearningRateScale(choice.state->ledger, job, changes);
  choice.alarm = absl::StrJoin(found.alarms, "; ");
  choice.is_complete = manifest.journal.is_complete;
  const int64_t total_rounds = job.schedule.total_rounds + choice.state->ledger.lost_rounds;
  const bool has_rounds_left = manifest.round.value() < total_rounds;
  choice.note = absl::StrCat(
      has_rounds_left ? "resumes from" : "takes the weights of", " path=", path,
      " round=", job::RoundOfText(manifest.round.value(), total_rounds, " of "), AgeText(age),
      changes.empty() ? "; its settings are those of the flags" : "; settings that differ:",
      checkpoint::SettingsTable(changes));
  const std::string rate = ScaledRateText(choice.state->ledger, job, manifest.round);
  if (has_rounds_left && !rate.empty()) absl::StrAppend(&choice.note, "\n  ", rate);
  choice.resumed.emplace(model::ResumeSnapshot{path, manifest.round, {}});
  for (checkpoint::SettingChange& change : changes) {
    choice.resumed->changes.push_back({std::move(change.flag), std::move(change.saved),
                                       std::move(change.asked), std::move(change.effect)});
  }
  return choice;
}

coordinator::RestoreChoice CheckpointKeeper::FreshStart() const {
  coordinator::RestoreChoice choice;
  if (std::holds_alternative<params::ClientModelSpec>(config_.job.model.architecture)) {
    choice.source = shards::ClientSource{};
  } else if (!config_.init_from.empty()) {
    choice.source = shards::SafetensorsSource{config_.init_from};
  } else {
    choice.source = shards::InitialSource{};
  }
  choice.note = absl::StrCat(
      "begins at round ", job::RoundOfText(0, config_.job.schedule.total_rounds, " of "),
      config_.init_from.empty() ? "" : absl::StrCat(" with the weights of ", config_.init_from),
      config_.root.empty() ? "" : absl::StrCat("; checkpoints go to ", config_.root));
  return choice;
}

}  // namespace lodestar::host
