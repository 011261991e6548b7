// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/open_round.h"

#include <algorithm>

namespace lodestar::rounds {

OpenRound::OpenRound(const WorkLedger::Work& work, absl::Time opened_at) : front_since_(opened_at) {
  memory_.plan = work.plan;
  memory_.opened_at = opened_at;
  for (size_t i = 0; i < work.grants.size(); ++i) {
    memory_.is_evaluation = work.grants[i].kind == messages::Grant::Kind::kEvaluate;
    memory_.shares[memory_.plan.roster[i].worker] = {ShareState::kMissing,
                                                     work.grants[i].num_heldout_samples};
  }
}

void OpenRound::Report(WorkerId worker, const messages::RoundReport& report, absl::Time now) {
  const auto share = memory_.shares.find(worker);
  if (share == memory_.shares.end() || share->second.state != ShareState::kMissing) return;
  Settle(worker, ShareState::kReported, now);
  ++memory_.reported;
  memory_.loss_sum += report.loss_sum;
  memory_.predictions += report.num_predictions;
  memory_.samples += report.num_samples;
  memory_.metrics.Add(report.metrics);
  memory_.times.compute += std::max(report.compute, absl::ZeroDuration());
  memory_.times.communication += std::max(report.communication, absl::ZeroDuration());
  memory_.times.wait += std::max(report.wait, absl::ZeroDuration());
  if (share->second.num_heldout_samples == 0) return;  // the worker was not asked for an evaluation
  // A worker that was told to stop reports no held-out sums. The evaluation is then incomplete.
  memory_.heldout.Add({report.heldout_loss_sum, report.heldout_correct, report.heldout_predictions,
                       /*complete=*/report.heldout_predictions > 0});
}

void OpenRound::Lose(WorkerId worker, absl::Time now) {
  const auto share = memory_.shares.find(worker);
  if (share == memory_.shares.end() || share->second.state != ShareState::kMissing) return;
  Settle(worker, ShareState::kLost, now);
}

void OpenRound::Settle(WorkerId worker, ShareState state, absl::Time now) {
  if (Missing().front() == worker) front_since_ = now;
  memory_.shares.at(worker).state = state;
}

RoundSummary OpenRound::Summarize(absl::Time now) const {
  RoundSummary summary;
  summary.round = memory_.plan.round;
  summary.trained = !memory_.is_evaluation;
  if (memory_.predictions > 0)
    summary.train_loss = memory_.loss_sum / static_cast<double>(memory_.predictions);
  summary.samples = memory_.samples;
  summary.learning_rate = memory_.plan.learning_rate;
  summary.duration = now - memory_.opened_at;
  summary.completed_at = now;
  summary.workers = memory_.reported;
  if (memory_.reported > 0) {
    summary.worker_times = {.compute = memory_.times.compute / memory_.reported,
                            .communication = memory_.times.communication / memory_.reported,
                            .wait = memory_.times.wait / memory_.reported};
  }
  summary.metrics = memory_.metrics.Values();
  summary.metrics_dropped = memory_.metrics.num_dropped;
  summary.committed_short = memory_.reported < static_cast<int>(memory_.plan.roster.size());
  return summary;
}

HeldoutSums OpenRound::Heldout() const {
  HeldoutSums sums = memory_.heldout;
  for (const auto& [worker, share] : memory_.shares) {
    if (share.num_heldout_samples > 0 && share.state != ShareState::kReported)
      sums.complete = false;
  }
  return sums;
}

std::vector<sync::RosterMember> OpenRound::Reported() const {
  std::vector<sync::RosterMember> members;
  for (const sync::RosterMember& member : memory_.plan.roster) {
    if (memory_.shares.at(member.worker).state == ShareState::kReported) members.push_back(member);
  }
  return members;
}

std::vector<WorkerId> OpenRound::InState(ShareState state) const {
  std::vector<WorkerId> workers;
  for (const auto& [worker, share] : memory_.shares) {
    if (share.state == state) workers.push_back(worker);
  }
  return workers;
}

}  // namespace lodestar::rounds
