// SPDX-License-Identifier: Apache-2.0

#include "server/checkpoint/resume_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/job/job_settings.h"
#include "common/job/learning_rate_schedule.h"
#include "common/params/model_spec.h"
#include "common/params/model_spec_json.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"

namespace lodestar::checkpoint {
namespace {

constexpr char kModelFlag[] = "model";
constexpr char kLearningRateFlag[] = "learning_rate";
constexpr char kRateName[] = "rate";  // name of a SettingChange that is not about a flag
// Maximum factor by which a restart may raise the learning rate.
constexpr double kMostRise = 1.1;

// Returns a JSON scalar in the form in which it is given to a flag.
std::string TextOf(const Json& value) {
  return PeerText(value.is_string() ? value.get<std::string>() : FormatJson(value));
}

std::optional<std::string> SavedValue(const checkpoints::Manifest& manifest,
                                      const std::string& flag) {
  const auto saved = manifest.settings.find(flag);
  if (saved == manifest.settings.end()) return std::nullopt;
  return TextOf(*saved);
}

// Returns the fields of the model that decide what its weights mean, such as "gpt.width", with
// their values.
std::map<std::string, std::string> ArchitectureOf(const params::ModelSpec& model) {
  std::map<std::string, std::string> fields;
  const auto json = ParseJson(params::ModelSpecToJson(model));
  if (!json.ok()) return fields;
  for (const auto& [kind, values] : json->items()) {
    if (!values.is_object()) continue;
    fields["kind"] = FormatJson(kind);
    for (const auto& [field, value] : values.items()) {
      if (field != "dropout") fields[absl::StrCat(kind, ".", field)] = FormatJson(value);
    }
  }
  return fields;
}

// Compares the models. Models may differ although all tensors have the same shapes, for example in
// the number of heads.
void CompareModels(const params::ModelSpec& saved, const params::ModelSpec& asked,
                   std::vector<SettingChange>& changes) {
  const std::map<std::string, std::string> have = ArchitectureOf(saved);
  std::vector<std::string> differences;
  for (const auto& [field, value] : ArchitectureOf(asked)) {
    const auto old = have.find(field);
    if (old == have.end() || old->second == value) continue;
    differences.push_back(absl::StrCat(field, " is ", old->second, ", but the flags say ", value));
  }
  if (differences.empty()) return;
  changes.push_back({kModelFlag, saved.name, asked.name,
                     absl::StrCat("the checkpoint's weights are of another model (",
                                  absl::StrJoin(differences, "; "), ")"),
                     /*is_refused=*/true});
}

// Returns the flag that gives a job the model of the checkpoint, for the text of an error.
std::string FlagFor(const checkpoints::Manifest& manifest) {
  const auto saved = params::ModelSpecFromJson(manifest.model);
  if (!saved.ok()) return "the --model of the checkpoint";
  const auto preset = params::ModelPreset(saved->name);
  if (preset.ok() && ArchitectureOf(*preset) == ArchitectureOf(*saved)) {
    return absl::StrCat("--model=", saved->name);
  }
  return absl::StrCat("--model=FILE with a file that says: ", params::ModelSpecToModelFile(*saved));
}

bool HoldsState(const checkpoints::Manifest& manifest,
                const std::vector<std::string>& state_names) {
  return std::all_of(
      manifest.shards.begin(), manifest.shards.end(),
      [&](const checkpoints::ShardManifest& shard) { return shard.state_names == state_names; });
}

// Returns why a setting may not differ. The text is empty if the setting may change from the
// checkpoint's round on.
std::string Contradiction(const SettingChange& change, bool holds_state) {
  const std::string& flag = change.flag;
  const absl::string_view reduce = NameOf(job::OptimizerKind::kReduce);
  if (flag == "mode")
    return "rounds and versions of the checkpoint have no meaning in another mode";
  if (flag == "seed") return "the order of the samples would change";
  if (flag == "optimizer" && (change.saved == reduce || change.asked == reduce)) {
    return "with reduce, servers hold a gradient in place of weights";
  }
  if (!holds_state && (flag == "optimizer" || flag == "outer_optimizer")) {
    return "the checkpoint has the state of the other optimizer";
  }
  return "";
}

std::string Effect(const std::string& flag, const checkpoints::Manifest& manifest,
                   const job::JobSpec& asked) {
  if (flag == "rounds" && asked.schedule.total_rounds <= manifest.round.value()) {
    return "no round is left to do";
  }
  if (flag == "rounds") return "the job ends after that many rounds, counted from its first start";
  if (flag == "bucket_bytes") return "the buckets are divided again";
  return absl::StrCat("from round ", manifest.round.value(), " on");
}

// Returns the schedule that the checkpoint was written with. It is not set if the manifest does not
// have all of the schedule.
std::optional<job::LearningRateSchedule> SavedSchedule(const checkpoints::Manifest& manifest) {
  job::LearningRateSchedule schedule;
  const auto kind = ParseKind<job::ScheduleKind>(SavedValue(manifest, "lr_schedule").value_or(""));
  const bool is_whole =
      kind.ok() &&
      absl::SimpleAtod(SavedValue(manifest, "learning_rate").value_or(""), &schedule.peak) &&
      absl::SimpleAtod(SavedValue(manifest, "min_learning_rate").value_or(""), &schedule.minimum) &&
      absl::SimpleAtoi(SavedValue(manifest, "warmup_rounds").value_or(""),
                       &schedule.warmup_rounds) &&
      absl::SimpleAtoi(SavedValue(manifest, "rounds").value_or(""), &schedule.total_rounds);
  if (!is_whole) return std::nullopt;
  schedule.kind = *kind;
  return schedule;
}

// Compares the learning rates of the next step by the saved and by the new schedule. Returns a
// change if the printed rates differ. Not set if there is no next step, or if they are equal.
std::optional<SettingChange> CompareRates(const std::vector<SettingChange>& changes,
                                          const checkpoints::Manifest& manifest,
                                          const job::JobSpec& asked, const RateAtResume& rate) {
  const std::optional<job::LearningRateSchedule> saved = SavedSchedule(manifest);
  if (!saved.has_value() || job::ReducesOnly(asked) || asked.schedule.total_rounds <= rate.place) {
    return std::nullopt;
  }
  const double place = static_cast<double>(rate.place);
  const double before = rate.scale * saved->At(place);
  const double after = ScaleAfter(changes, rate) * asked.schedule.At(place);
  SettingChange change = {kRateName, absl::StrCat(before), absl::StrCat(after),
                          absl::StrCat("this is the rate of round ", manifest.round.value())};
  if (change.saved == change.asked) return std::nullopt;
  const bool rises = after > kMostRise * before;
  if (rises && before > 0) {
    absl::StrAppend(&change.effect, "; ", absl::StrFormat("%.3g", after / before),
                    " times as high as before");
  }
  change.is_refused = rises && !rate.may_rise;
  return change;
}

// Returns the flags that give the schedule of the checkpoint, such as "--rounds=100
// --lr_schedule=cosine". --rounds is left out if the schedule does not depend on it.
std::string SavedScheduleFlags(const std::vector<SettingChange>& changes,
                               const checkpoints::Manifest& manifest) {
  static constexpr absl::string_view kFlags[] = {"rounds", "learning_rate", "min_learning_rate",
                                                 "lr_schedule", "warmup_rounds"};
  const std::optional<job::LearningRateSchedule> saved = SavedSchedule(manifest);
  const bool is_constant = saved.has_value() && !saved->falls();
  std::vector<std::string> flags;
  for (const SettingChange& change : changes) {
    if (is_constant && change.flag == "rounds") continue;
    if (std::find(std::begin(kFlags), std::end(kFlags), change.flag) == std::end(kFlags)) continue;
    flags.push_back(absl::StrCat("--", change.flag, "=", change.saved));
  }
  return absl::StrJoin(flags, " ");
}

}  // namespace

std::vector<SettingChange> CompareSettings(const checkpoints::Manifest& manifest,
                                           const job::JobSpec& asked,
                                           const std::vector<std::string>& state_names,
                                           const RateAtResume& rate,
                                           const std::vector<job::JobSetting>& saving) {
  std::vector<SettingChange> changes;
  if (!manifest.model.empty()) {
    const auto saved = params::ModelSpecFromJson(manifest.model);
    if (saved.ok()) CompareModels(*saved, asked.model, changes);
  }
  const bool holds_state = HoldsState(manifest, state_names);
  std::vector<job::JobSetting> settings = job::JobSettings(asked);
  settings.insert(settings.end(), saving.begin(), saving.end());
  for (const job::JobSetting& setting : settings) {
    const std::optional<std::string> saved = SavedValue(manifest, setting.flag);
    if (!saved.has_value() || *saved == setting.value) continue;
    SettingChange change = {setting.flag, *saved, setting.value, /*effect=*/""};
    change.effect = Contradiction(change, holds_state);
    change.is_refused = !change.effect.empty();
    if (!change.is_refused) change.effect = Effect(setting.flag, manifest, asked);
    changes.push_back(std::move(change));
  }
  if (auto change = CompareRates(changes, manifest, asked, rate); change.has_value()) {
    changes.push_back(*std::move(change));
  }
  return changes;
}

bool DropsOrderedRate(const std::vector<SettingChange>& changes, const RateAtResume& rate) {
  // The part is a product of several orders. If they cancel out, a rounding error may remain.
  if (!rate.is_given || !(rate.scale_by_operators > 0) ||
      std::abs(rate.scale_by_operators - 1.0) <= 1e-9) {
    return false;
  }
  return std::any_of(changes.begin(), changes.end(),
                     [](const SettingChange& change) { return change.flag == kLearningRateFlag; });
}

double ScaleAfter(const std::vector<SettingChange>& changes, const RateAtResume& rate) {
  return DropsOrderedRate(changes, rate) ? rate.scale / rate.scale_by_operators : rate.scale;
}

std::string DroppedRateText(const std::vector<SettingChange>& changes,
                            const checkpoints::Manifest& manifest, const job::JobSpec& asked,
                            const RateAtResume& rate) {
  const std::optional<job::LearningRateSchedule> saved = SavedSchedule(manifest);
  if (!saved.has_value() || !DropsOrderedRate(changes, rate)) return "";
  const auto place = static_cast<double>(rate.place);
  return absl::StrCat("--learning_rate=", asked.schedule.peak,
                      " replaces the rate that psctl set-learning-rate has set (",
                      rate.scale * saved->At(place),
                      "). With the schedule, the learning rate of round ", manifest.round.value(),
                      " is ", ScaleAfter(changes, rate) * asked.schedule.At(place),
                      ". To change it, run psctl set-learning-rate");
}

absl::Status CheckNoneRefused(const std::vector<SettingChange>& changes,
                              const checkpoints::Manifest& manifest,
                              const std::string& checkpoint) {
  std::vector<std::string> refused;
  std::vector<std::string> wanted;
  bool is_other_model = false;
  for (const SettingChange& change : changes) {
    if (!change.is_refused) continue;
    if (change.flag == kModelFlag) {
      is_other_model = true;
      refused.push_back(absl::StrCat("model '", change.asked, "' contradicts '", change.saved,
                                     "' of the checkpoint: ", change.effect));
      wanted.push_back(FlagFor(manifest));
      continue;
    }
    if (change.flag == kRateName) {
      refused.push_back(absl::StrCat("the learning rate would rise from ", change.saved, " to ",
                                     change.asked, " at round ", manifest.round.value(),
                                     ", by more than 10 %"));
      wanted.push_back(absl::StrCat("--accept_higher_rate, or the schedule of the checkpoint: ",
                                    SavedScheduleFlags(changes, manifest)));
      continue;
    }
    refused.push_back(absl::StrCat("--", change.flag, "=", change.asked, " contradicts --",
                                   change.flag, "=", change.saved,
                                   " of the checkpoint: ", change.effect));
    wanted.push_back(absl::StrCat("--", change.flag, "=", change.saved));
  }
  if (refused.empty()) return absl::OkStatus();
  const std::string another =
      is_other_model
          ? "; for a new job with the other model, give "
          : absl::StrCat("; for a new job that starts from the weights of this checkpoint, give ",
                         "--resume=never --init_from=", checkpoint, " and ");
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot resume ", checkpoint, ": ", absl::StrJoin(refused, "; "), ". To continue, give ",
      absl::StrJoin(wanted, ", "), another, "another --checkpoint_dir"));
}

std::string SettingsTable(const std::vector<SettingChange>& changes) {
  if (changes.empty()) return "";
  std::vector<std::array<std::string, 4>> rows = {
      {"setting", "checkpoint", "asked", "what happens"}};
  for (const SettingChange& change : changes) {
    rows.push_back({change.flag, change.saved, change.asked, change.effect});
  }
  std::array<size_t, 4> widths = {};
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, " ", row[i]);
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size() + 1, ' ');
    }
    absl::StrAppend(&table, "\n", line);
  }
  return table;
}

}  // namespace lodestar::checkpoint
