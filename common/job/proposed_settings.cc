// SPDX-License-Identifier: Apache-2.0

#include "common/job/proposed_settings.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/params/model_spec.h"
#include "common/runtime/status_macros.h"

namespace lodestar::job {
namespace {

constexpr char kOptimizer[] = "optimizer";
constexpr char kBatchSize[] = "batch_size";
constexpr char kSchedule[] = "lr_schedule";
constexpr const char* kScheduleFlags[] = {"learning_rate", "min_learning_rate", kSchedule,
                                          "warmup_rounds"};

// A setting that is a number, with its members in ProposedSettings and in JobSpec.
struct Number {
  const char* flag;
  bool is_of_optimizer;
  std::optional<double> ProposedSettings::*proposed;
  double& (*of)(JobSpec& job);
};

constexpr Number kNumbers[] = {
    {"momentum", true, &ProposedSettings::momentum,
     [](JobSpec& job) -> double& { return job.optimizer.momentum; }},
    {"beta1", true, &ProposedSettings::beta1,
     [](JobSpec& job) -> double& { return job.optimizer.beta1; }},
    {"beta2", true, &ProposedSettings::beta2,
     [](JobSpec& job) -> double& { return job.optimizer.beta2; }},
    {"epsilon", true, &ProposedSettings::epsilon,
     [](JobSpec& job) -> double& { return job.optimizer.epsilon; }},
    {"weight_decay", true, &ProposedSettings::weight_decay,
     [](JobSpec& job) -> double& { return job.optimizer.weight_decay; }},
    {"learning_rate", false, &ProposedSettings::learning_rate,
     [](JobSpec& job) -> double& { return job.schedule.peak; }},
    {"clip_norm", false, &ProposedSettings::clip_norm,
     [](JobSpec& job) -> double& { return job.clip_norm; }},
};

// Returns true if a norm limit that a program proposes can replace its own clipping: the servers
// make the steps, from gradients.
bool CanTakeClipNorm(const JobSpec& job) { return !HasLocalSteps(job) && !ReducesOnly(job); }

absl::Status BadValue(absl::string_view setting, absl::string_view value,
                      absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("--", setting, "=", value, " is no ", wanted));
}

std::string AllNames() {
  std::vector<std::string> names = {kOptimizer};
  for (const Number& number : kNumbers) names.emplace_back(number.flag);
  names.emplace_back(kBatchSize);
  names.emplace_back(kSchedule);
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::Status SetProposed(absl::string_view setting, absl::string_view value,
                         ProposedSettings& proposed) {
  if (setting == kOptimizer) {
    ASSIGN_OR_RETURN(proposed.optimizer, ParseKind<OptimizerKind>(value));
    return absl::OkStatus();
  }
  if (setting == kBatchSize) {
    int64_t samples = 0;
    if (!absl::SimpleAtoi(value, &samples)) return BadValue(setting, value, "whole number");
    proposed.batch_size = samples;
    return absl::OkStatus();
  }
  if (setting == kSchedule) {
    ASSIGN_OR_RETURN(const ScheduleKind kind, ParseKind<ScheduleKind>(value));
    if (kind != ScheduleKind::kProgram) {
      return BadValue(setting, value,
                      "schedule that a program may propose; allowed is only program");
    }
    proposed.has_program_rates = true;
    return absl::OkStatus();
  }
  for (const Number& number : kNumbers) {
    if (setting != number.flag) continue;
    double read = 0.0;
    if (!absl::SimpleAtod(value, &read)) return BadValue(setting, value, "number");
    proposed.*number.proposed = read;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", setting, "' is not a setting that a program may propose; allowed are: ", AllNames()));
}

ProposedSettings ProposedBySaved(const std::vector<JobSetting>& saved) {
  ProposedSettings proposed;
  for (const JobSetting& setting : saved) {
    // A batch size of 0 means that the job has a global batch size instead.
    if (setting.flag == kBatchSize && setting.value == "0") continue;
    SetProposed(setting.flag, setting.value, proposed).IgnoreError();
  }
  return proposed;
}

SettledJob Settle(const JobSpec& job, const std::set<std::string>& given,
                  const ProposedSettings& proposed) {
  JobSpec wanted = job;
  SettledJob settled = {.job = job, .taken = {}, .not_taken = {}};
  const bool has_optimizer = given.contains(kOptimizer);
  std::set<std::string> open;
  std::set<std::string> decided;
  const auto note = [&](const char* flag, bool is_given) {
    (is_given ? decided : open).insert(flag);
    return !is_given;
  };
  if (proposed.optimizer.has_value()) {
    wanted.optimizer.kind = *proposed.optimizer;
    if (note(kOptimizer, has_optimizer)) settled.job.optimizer.kind = *proposed.optimizer;
  }
  for (const Number& number : kNumbers) {
    const std::optional<double>& value = proposed.*number.proposed;
    if (!value.has_value()) continue;
    number.of(wanted) = *value;
    const bool is_given =
        given.contains(number.flag) || (number.is_of_optimizer && has_optimizer) ||
        (number.proposed == &ProposedSettings::clip_norm && !CanTakeClipNorm(settled.job));
    if (note(number.flag, is_given)) number.of(settled.job) = *value;
  }
  if (proposed.batch_size.has_value()) {
    wanted.batch_size = *proposed.batch_size;
    const bool is_given = given.contains(kBatchSize) || job.global_batch_size > 0;
    if (note(kBatchSize, is_given)) settled.job.batch_size = *proposed.batch_size;
  }
  if (proposed.has_program_rates) {
    wanted.schedule.kind = ScheduleKind::kProgram;
    const bool is_given = std::any_of(std::begin(kScheduleFlags), std::end(kScheduleFlags),
                                      [&given](const char* flag) { return given.contains(flag); });
    if (note(kSchedule, is_given || !CanTakeProgramRates(job))) {
      settled.job.schedule.kind = ScheduleKind::kProgram;
    }
  }
  for (const JobSetting& setting : JobSettings(wanted)) {
    if (open.contains(setting.flag)) settled.taken.push_back(setting);
    if (decided.contains(setting.flag)) settled.not_taken.push_back(setting);
  }
  return settled;
}

absl::Status ValidateProposed(const ProposedSettings& proposed) {
  JobSpec job;
  job.model = {"client", params::ClientModelSpec{}};
  job.batch_size = 1;
  return ValidateJobSpec(Settle(job, /*given=*/{}, proposed).job);
}

std::string SettingsText(const std::vector<JobSetting>& settings) {
  if (settings.empty()) return "nothing";
  return absl::StrJoin(settings, ", ", [](std::string* out, const JobSetting& setting) {
    absl::StrAppend(out, setting.flag, "=", setting.value);
  });
}

}  // namespace lodestar::job
