// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/job_progress.h"

#include <algorithm>

namespace lodestar::rounds {

void JobProgress::Restore(const checkpoints::ProgressState& state) {
  loss_ = state.loss;
  metrics_.clear();
  trained_time_ = state.trained_time;
  counted_until_.reset();
  samples_ = stragglers::RateMeter();
  rounds_ = stragglers::RateMeter();
}

void JobProgress::Resume(const Memory& memory) {
  Restore(memory.state);
  usual_round_ = memory.usual_round;
  rounds_committed_short_ = memory.rounds_committed_short;
}

void JobProgress::OnOpened(absl::Time now) {
  if (!counted_until_.has_value()) counted_until_ = now;
}

void JobProgress::OnRound(const RoundSummary& summary) {
  if (summary.train_loss.has_value()) {
    loss_.train = summary.train_loss;
    loss_.train_round = summary.round;
  }
  if (summary.heldout_loss.has_value()) {
    loss_.heldout = summary.heldout_loss;
    loss_.heldout_accuracy = summary.heldout_accuracy;
    loss_.heldout_round = summary.round;
  }
  NoteMetrics(summary);
  if (counted_until_.has_value()) trained_time_ += summary.completed_at - *counted_until_;
  counted_until_ = summary.completed_at;
  // A long round raises usual_round_ at once. Afterwards usual_round_ falls by at most half per
  // round.
  if (!summary.committed_short) usual_round_ = std::max(summary.duration, usual_round_ / 2);
  if (!summary.trained) return;
  if (summary.committed_short) ++rounds_committed_short_;
  samples_.Add(static_cast<double>(summary.samples), summary.completed_at);
  rounds_.Add(1.0, summary.completed_at);
}

void JobProgress::NoteMetrics(const RoundSummary& summary) {
  metrics_dropped_ += summary.metrics_dropped;
  for (const auto& [name, value] : summary.metrics) {
    metrics_[name] = {value, summary.round};
    if (metrics_.size() <= messages::kMaxMetricsOfRound) continue;
    const auto oldest = std::min_element(
        metrics_.begin(), metrics_.end(),
        [](const auto& a, const auto& b) { return a.second.round < b.second.round; });
    metrics_.erase(oldest);
  }
}

JobProgress::Pace JobProgress::PaceOf(const Outlook& outlook, absl::Time now) const {
  if (!outlook.is_training) return {};
  Pace pace = {.samples_per_second = samples_.PerSecond(now)};
  if (outlook.tokens_per_sample > 1) {
    pace.tokens_per_second =
        pace.samples_per_second * static_cast<double>(outlook.tokens_per_sample);
  }
  const double rounds_per_second = rounds_.PerSecond(now);
  if (outlook.remaining_rounds > 0 && rounds_per_second > 0.0) {
    pace.eta = absl::Seconds(static_cast<double>(outlook.remaining_rounds) / rounds_per_second);
  }
  return pace;
}

}  // namespace lodestar::rounds
