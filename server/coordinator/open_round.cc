#include "server/coordinator/open_round.h"

namespace lodestar {

OpenRound::OpenRound(const WorkLedger::Work& work, absl::Time opened_at)
    : plan_(work.plan), opened_at_(opened_at), front_since_(opened_at) {
  for (size_t i = 0; i < work.grants.size(); ++i) {
    is_evaluation_ = work.grants[i].kind == Grant::Kind::kEvaluate;
    shares_[plan_.roster[i].worker] = {State::kMissing, work.grants[i].num_heldout_samples};
  }
}

void OpenRound::Report(WorkerId worker, const RoundReport& report, absl::Time now) {
  auto share = shares_.find(worker);
  if (share == shares_.end() || share->second.state != State::kMissing) return;
  Settle(worker, State::kReported, now);
  ++reported_;
  loss_sum_ += report.loss_sum;
  predictions_ += report.num_predictions;
  samples_ += report.num_samples;
  if (share->second.num_heldout_samples == 0) return;  // nobody has asked for it
  heldout_.Add({report.heldout_loss_sum, report.heldout_correct, report.heldout_predictions});
}

void OpenRound::Lose(WorkerId worker, absl::Time now) {
  auto share = shares_.find(worker);
  if (share == shares_.end() || share->second.state != State::kMissing) return;
  Settle(worker, State::kLost, now);
}

void OpenRound::Settle(WorkerId worker, State state, absl::Time now) {
  if (Missing().front() == worker) front_since_ = now;
  shares_.at(worker).state = state;
}

RoundSummary OpenRound::Summarize(absl::Time now) const {
  RoundSummary summary;
  summary.round = plan_.round;
  summary.trained = !is_evaluation_;
  if (predictions_ > 0) summary.train_loss = loss_sum_ / static_cast<double>(predictions_);
  summary.samples = samples_;
  summary.learning_rate = plan_.learning_rate;
  summary.duration = now - opened_at_;
  summary.completed_at = now;
  summary.workers = reported_;
  summary.committed_short = reported_ < static_cast<int>(plan_.roster.size());
  return summary;
}

HeldoutSums OpenRound::Heldout() const {
  HeldoutSums sums = heldout_;
  for (const auto& [worker, share] : shares_) {
    if (share.num_heldout_samples > 0 && share.state != State::kReported) sums.complete = false;
  }
  return sums;
}

std::vector<RosterMember> OpenRound::Reported() const {
  std::vector<RosterMember> members;
  for (const RosterMember& member : plan_.roster) {
    if (shares_.at(member.worker).state == State::kReported) members.push_back(member);
  }
  return members;
}

std::vector<WorkerId> OpenRound::InState(State state) const {
  std::vector<WorkerId> workers;
  for (const auto& [worker, share] : shares_) {
    if (share.state == state) workers.push_back(worker);
  }
  return workers;
}

}  // namespace lodestar
