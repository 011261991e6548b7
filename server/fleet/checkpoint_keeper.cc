#include "server/fleet/checkpoint_keeper.h"

#include <filesystem>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint_manifest.h"
#include "common/logging.h"
#include "common/model_spec_json.h"
#include "common/status_macros.h"
#include "server/checkpoint/checkpoint_publisher.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/coordinator/coordinator_state_json.h"

namespace lodestar {
namespace {

// Later starts get higher numbers, and two starts in one millisecond differ.
uint64_t NewServerIncarnation() {
  std::random_device random;
  const uint64_t milliseconds = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
  return (milliseconds << 16) | (random() & 0xffff);
}

// What a crash left half-written.
void RemoveUnfinished(const std::string& root) {
  std::error_code error;
  std::vector<std::string> unfinished;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "round-") && absl::EndsWith(name, ".tmp")) {
      unfinished.push_back(entry.path().string());
    }
  }
  for (const std::string& directory : unfinished) DiscardCheckpoint(directory);
}

Json SettingsOf(const JobSpec& job) {
  Json settings = Json::object();
  settings["mode"] = std::string(ModeName(job.mode));
  settings["optimizer"] = std::string(OptimizerKindName(job.optimizer.kind));
  settings["outer_optimizer"] = std::string(OuterOptimizerKindName(job.outer_optimizer));
  settings["local_steps"] = job.local_steps;
  settings["rounds"] = job.schedule.total_rounds;
  settings["batch_size"] = job.batch_size;
  settings["global_batch_size"] = job.global_batch_size;
  settings["seed"] = job.seed;
  settings["push_encoding"] = std::string(EncodingName(job.push_encoding));
  settings["pull_encoding"] = std::string(EncodingName(job.pull_encoding));
  settings["error_feedback"] = job.error_feedback;
  return settings;
}

uint64_t TotalBytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const ShardManifest& shard : manifest.shards) {
    bytes += shard.weights.num_bytes + shard.optimizer.num_bytes;
  }
  return bytes;
}

}  // namespace

CheckpointKeeper::CheckpointKeeper(Config config, MapProvider map, CheckpointReports* reports)
    : config_(std::move(config)),
      map_(std::move(map)),
      reports_(reports),
      thread_(1, "checkpoints") {}

void CheckpointKeeper::Publish(CheckpointRecord record) {
  thread_.Schedule([this, record = std::move(record)] {
    const absl::StatusOr<PublishedCheckpoint> published = PublishNow(record);
    has_published_ |= published.ok();
    reports_->OnCheckpointPublished(record.directory, published);
  });
}

absl::StatusOr<PublishedCheckpoint> CheckpointKeeper::PublishNow(const CheckpointRecord& record) {
  const std::shared_ptr<const ClusterMap> map = map_();
  if (map == nullptr) return absl::AbortedError("the cluster has lost its layout meanwhile");
  Manifest manifest;
  manifest.round = record.round;
  manifest.layout = map->layout;
  for (const std::string& part : record.manifest_parts) {
    ASSIGN_OR_RETURN(manifest.shards.emplace_back(), ParseShardManifest(part));
  }
  ASSIGN_OR_RETURN(manifest.coordinator, ParseJson(CoordinatorStateToJson(record.state)));
  manifest.settings = SettingsOf(config_.job);
  manifest.model = ModelSpecToJson(config_.job.model);
  ASSIGN_OR_RETURN(std::string path, PublishCheckpoint(record.directory, manifest, config_.keep));
  for (const std::string& folder : {config_.root, config_.fallback}) {
    if (folder.empty() || absl::StartsWith(path, folder + "/")) continue;
    if (const absl::Status status = SetAsideNewer(folder, record.round); !status.ok()) {
      LogWarn("later checkpoints in {} stay there: {}", folder, status.message());
    }
  }
  return PublishedCheckpoint{std::move(path), record.round, TotalBytes(manifest)};
}

void CheckpointKeeper::Discard(absl::string_view directory) {
  thread_.Schedule([directory = std::string(directory)] { DiscardCheckpoint(directory); });
}

void CheckpointKeeper::ChooseRestore() {
  thread_.Schedule([this] {
    absl::StatusOr<RestoreChoice> choice = Choose();
    if (choice.ok()) choice->server_incarnation = NewServerIncarnation();
    reports_->OnRestoreChosen(choice);
  });
}

absl::StatusOr<RestoreChoice> CheckpointKeeper::Choose() {
  for (const std::string& folder : {config_.root, config_.fallback}) {
    if (!folder.empty()) RemoveUnfinished(folder);
  }
  if (!config_.resume_path.empty() && !has_published_) {
    ASSIGN_OR_RETURN(const Manifest manifest, VerifyCheckpoint(config_.resume_path));
    return FromCheckpoint(config_.resume_path, manifest.coordinator, manifest.layout);
  }
  const bool may_resume = config_.resume || has_published_;
  if (config_.root.empty() || !may_resume) return FreshStart();
  ASSIGN_OR_RETURN(const std::optional<FoundCheckpoint> found, FindNewest());
  if (!found.has_value()) return FreshStart();
  ASSIGN_OR_RETURN(
      RestoreChoice choice,
      FromCheckpoint(found->directory, found->manifest.coordinator, found->manifest.layout));
  choice.alarm = absl::StrJoin(found->alarms, "; ");
  return choice;
}

absl::StatusOr<std::optional<FoundCheckpoint>> CheckpointKeeper::FindNewest() const {
  absl::StatusOr<std::optional<FoundCheckpoint>> found = FindNewestCheckpoint(config_.root);
  if (config_.fallback.empty()) return found;
  ASSIGN_OR_RETURN(std::optional<FoundCheckpoint> spare, FindNewestCheckpoint(config_.fallback));
  if (!spare.has_value()) return found;
  std::vector<std::string> alarms;
  if (!found.ok()) {
    alarms.emplace_back(found.status().message());
  } else if (found->has_value()) {
    if ((*found)->manifest.round >= spare->manifest.round) return found;
    alarms = (*found)->alarms;
  }
  alarms.push_back(absl::StrCat("the newest checkpoint is in --fallback_dir: ", spare->directory));
  spare->alarms.insert(spare->alarms.begin(), alarms.begin(), alarms.end());
  return spare;
}

absl::StatusOr<RestoreChoice> CheckpointKeeper::FromCheckpoint(const std::string& directory,
                                                               const Json& coordinator,
                                                               const Layout& layout) const {
  RestoreChoice choice;
  choice.source = CheckpointSource{directory};
  choice.layout = layout;
  ASSIGN_OR_RETURN(choice.state, CoordinatorStateFromJson(FormatJson(coordinator)));
  return choice;
}

RestoreChoice CheckpointKeeper::FreshStart() const {
  RestoreChoice choice;
  if (std::holds_alternative<ClientModelSpec>(config_.job.model.architecture)) {
    choice.source = ClientSource{};
  } else if (!config_.init_from.empty()) {
    choice.source = SafetensorsSource{config_.init_from};
  } else {
    choice.source = InitialSource{};
  }
  return choice;
}

}  // namespace lodestar
