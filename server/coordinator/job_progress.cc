#include "server/coordinator/job_progress.h"

namespace lodestar {

void JobProgress::OnRound(const RoundSummary& summary) {
  if (summary.train_loss.has_value()) train_loss_ = summary.train_loss;
  if (summary.heldout_loss.has_value()) {
    heldout_loss_ = summary.heldout_loss;
    heldout_accuracy_ = summary.heldout_accuracy;
  }
  if (!summary.trained) return;
  if (summary.committed_short) ++rounds_committed_short_;
  samples_.Add(static_cast<double>(summary.samples), summary.completed_at);
  rounds_.Add(1.0, summary.completed_at);
}

void JobProgress::Describe(int64_t remaining_rounds, int64_t tokens_per_sample, absl::Time now,
                           ClusterSnapshot& snapshot) const {
  snapshot.train_loss = train_loss_;
  snapshot.heldout_loss = heldout_loss_;
  snapshot.heldout_accuracy = heldout_accuracy_;
  snapshot.samples_per_second = samples_.PerSecond(now);
  snapshot.tokens_per_second = snapshot.samples_per_second * static_cast<double>(tokens_per_sample);
  snapshot.rounds_committed_short = rounds_committed_short_;
  const double rounds_per_second = rounds_.PerSecond(now);
  if (remaining_rounds > 0 && rounds_per_second > 0.0) {
    snapshot.eta = absl::Seconds(static_cast<double>(remaining_rounds) / rounds_per_second);
  }
}

}  // namespace lodestar
