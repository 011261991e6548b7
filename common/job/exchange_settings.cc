// SPDX-License-Identifier: Apache-2.0

#include "common/job/exchange_settings.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/job/endless_rounds.h"
#include "common/job/job_fields.h"
#include "common/params/encoding.h"

namespace lodestar::job {
namespace {

// Number of local steps in a round of the trial. There are enough of them to measure the time of a
// step, and few enough for slow workers.
constexpr int kTrialSteps = 5;

int64_t InRounds(int64_t steps, double steps_per_round) {
  return static_cast<int64_t>(static_cast<double>(steps) / steps_per_round + 0.5);
}

}  // namespace

OpenSettings OpenSettings::All() {
  return {.mode = true,
          .local_steps = true,
          .fragments = true,
          .overlap = true,
          .push_encoding = true,
          .pull_encoding = true};
}

bool OpenSettings::any() const {
  return mode || local_steps || fragments || overlap || push_encoding || pull_encoding;
}

Mode ModeUntilChosen(const OpenSettings& open) {
  const bool is_any_given = !open.local_steps || !open.fragments || !open.overlap;
  return is_any_given ? Mode::kLocalSgd : Mode::kSync;
}

bool GoesWithoutLocalSteps(const JobSpec& asked, const OpenSettings& open) {
  return (open.local_steps || asked.local_steps == 1) && (open.fragments || asked.fragments == 1) &&
         (open.overlap || (asked.overlap_steps == 0 && !asked.overlap_rounds));
}

JobSpec WithOpenOf(const JobSpec& chosen, JobSpec asked, const OpenSettings& open) {
  if (open.mode) {
    asked.mode = chosen.mode;
    asked.outer_optimizer = chosen.outer_optimizer;
    asked.outer_learning_rate = chosen.outer_learning_rate;
    asked.outer_momentum = chosen.outer_momentum;
    asked.outer_beta2 = chosen.outer_beta2;
    asked.outer_epsilon = chosen.outer_epsilon;
  }
  if (open.mode || open.push_encoding) asked.topk_divisor = chosen.topk_divisor;
  if (open.local_steps) asked.local_steps = chosen.local_steps;
  if (open.fragments) asked.fragments = chosen.fragments;
  if (open.overlap) {
    asked.overlap_steps = chosen.overlap_steps;
    asked.overlap_rounds = chosen.overlap_rounds;
    asked.merge = chosen.merge;
    asked.merge_alpha = chosen.merge_alpha;
  }
  if (open.push_encoding) {
    asked.push_encoding = chosen.push_encoding;
    asked.feedback_decay = chosen.feedback_decay;
  }
  if (open.pull_encoding) asked.pull_encoding = chosen.pull_encoding;
  return asked;
}

absl::StatusOr<JobSpec> WithExchangeOf(const std::vector<JobSetting>& saved, JobSpec job) {
  for (const JobField& field : JobFields()) {
    if (!field.is_exchange) continue;
    const auto setting = std::find_if(saved.begin(), saved.end(), [&field](const JobSetting& one) {
      return one.flag == field.name;
    });
    if (setting == saved.end()) continue;
    if (const absl::Status set = SetFromText(field, setting->value, job); !set.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a saved setting of the job is wrong: ", set.message()));
    }
  }
  return job;
}

JobSpec TrialOf(JobSpec asked) {
  JobSpec exchange;
  exchange.mode = Mode::kLocalSgd;
  exchange.local_steps = kTrialSteps;
  exchange.push_encoding = params::Encoding::kInt8;
  exchange.pull_encoding = params::Encoding::kInt8;
  asked = WithOpenOf(exchange, std::move(asked), OpenSettings::All());
  asked.outer_reduction = exchange.outer_reduction;
  asked.quorum = exchange.quorum;
  asked.eval_every = 0;
  asked.schedule.total_rounds = kEndlessRounds;
  return asked;
}

std::vector<Mode> ModesToChooseFrom() { return {Mode::kSync, Mode::kLocalSgd}; }

double StepsPerRound(const JobSpec& job) {
  return HasLocalSteps(job) ? static_cast<double>(job.local_steps) / job.fragments : 1.0;
}

JobSpec InRounds(JobSpec job, const OpenSettings& open) {
  if (!HasLocalSteps(job) || !open.are_lengths_in_steps()) return job;
  const double steps_per_round = StepsPerRound(job);
  LearningRateSchedule& schedule = job.schedule;
  schedule.total_rounds = std::max<int64_t>(1, InRounds(schedule.total_rounds, steps_per_round));
  // If contributions are deferred, the workers compute nothing in the last round. They only send
  // what they computed before. So the job needs one more round.
  if (DefersContributions(job)) ++schedule.total_rounds;
  schedule.warmup_rounds =
      std::min(InRounds(schedule.warmup_rounds, steps_per_round), schedule.total_rounds);
  if (job.eval_every > 0) {
    job.eval_every = std::max<int64_t>(1, InRounds(job.eval_every, steps_per_round));
  }
  return job;
}

}  // namespace lodestar::job
