// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/model/exchange_tuning.h"

#include <algorithm>
#include <utility>

#include "common/job/exchange_settings.h"
#include "common/plan/exchange_choice.h"
#include "common/plan/exchange_sizes.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"

namespace lodestar::model {

void ExchangeTuning::Begin() {
  origin_ = ExchangeOrigin::kTrial;
  measured_.clear();
}

void ExchangeTuning::End(Choice choice) {
  origin_ = ExchangeOrigin::kChoice;
  choice_ = std::move(choice);
}

void ExchangeTuning::OnReport(WorkerId worker, const messages::RoundReport& report,
                              int local_steps) {
  if (!is_measuring() || report.num_samples <= 0 || local_steps < 1) return;
  Measured& measured = measured_[worker];
  // Leaves out the first round. In it, the first weights are sent whole, and new connections are
  // still slow.
  if (++measured.rounds > 1) measured.exchanges += report.communication + report.wait;
  measured.step = std::min(measured.step, report.compute / local_steps);
}

void ExchangeTuning::OnHeartbeat(WorkerId worker, const messages::PathFacts& path) {
  const auto measured = measured_.find(worker);
  if (measured == measured_.end() || measured->second.rounds < kTrialRounds) return;
  measured->second.path = path;
  measured->second.has_path = true;
}

bool ExchangeTuning::HasMeasured(WorkerId worker) const {
  const auto measured = measured_.find(worker);
  return measured != measured_.end() && measured->second.has_path;
}

absl::Duration ExchangeTuning::MeanExchange() const {
  absl::Duration shortest = absl::InfiniteDuration();
  for (const auto& [worker, measured] : measured_) {
    if (measured.rounds > 1) {
      shortest = std::min(shortest, measured.exchanges / (measured.rounds - 1));
    }
  }
  return shortest;
}

absl::StatusOr<plan::ExchangeFacts> ExchangeTuning::Facts(const job::JobSpec& asked,
                                                          const params::Layout& layout,
                                                          int num_shards) const {
  LODESTAR_CHECK(!measured_.empty()) << "nobody has measured anything";
  plan::ExchangeFacts facts;
  facts.num_workers = static_cast<int>(measured_.size());
  const auto slower = [](double a, double b) { return b > 0.0 ? std::min(a, b) : a; };
  double highest_up = 0.0;
  double highest_down = 0.0;
  for (const auto& [worker, measured] : measured_) {
    facts.step = std::max(facts.step, measured.step);
    plan::NetworkPath& path = facts.path;
    path.worker_up = slower(path.worker_up, measured.path.up_bytes_per_second);
    path.worker_down = slower(path.worker_down, measured.path.down_bytes_per_second);
    path.round_trip = std::max(path.round_trip, measured.path.round_trip);
    highest_up = std::max(highest_up, measured.path.up_bytes_per_second);
    highest_down = std::max(highest_down, measured.path.down_bytes_per_second);
  }
  if (highest_up == 0.0 || highest_down == 0.0) return facts;
  plan::ExchangeFacts shared = facts;
  shared.path.server_down = highest_up;
  shared.path.server_up = highest_down;
  const job::JobSpec trial = job::TrialOf(asked);
  ASSIGN_OR_RETURN(const plan::ExchangeSizes sizes,
                   plan::PlanExchangeSizes(trial, layout, num_shards));
  const auto miss = [&](const plan::ExchangeFacts& assumed) {
    return absl::AbsDuration(plan::ForecastExchange(trial, sizes, assumed).exposed() -
                             MeanExchange());
  };
  return miss(shared) < miss(facts) ? shared : facts;
}

absl::StatusOr<ExchangeTuning::Choice> ExchangeTuning::Choose(const job::JobSpec& asked,
                                                              const job::OpenSettings& open,
                                                              const params::Layout& layout,
                                                              int num_shards) const {
  ASSIGN_OR_RETURN(const plan::ExchangeFacts facts, Facts(asked, layout, num_shards));
  const double steps_per_round = open.are_lengths_in_steps() ? 1.0 : job::StepsPerRound(asked);
  plan::ExchangeBounds bounds = {.loss_percent = plan::kMostLossPercent,
                                 .prefers_sync = true,
                                 .open = open,
                                 .modes = job::ModesToChooseFrom()};
  bounds.total_steps =
      static_cast<int64_t>(static_cast<double>(asked.schedule.total_rounds) * steps_per_round);
  bounds.possible = [&open](const job::JobSpec& job) {
    return job::ValidateJobSpec(job::InRounds(job, open));
  };
  ASSIGN_OR_RETURN(const plan::ExchangeChoice all,
                   plan::ChooseExchange(asked, layout, num_shards, facts, bounds));
  const plan::ExchangeOption& option = all.options[all.chosen];
  return Choice{job::InRounds(option.job, open), facts, option, all.reason};
}

}  // namespace lodestar::model
