// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/rounds/worker_assignment.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace lodestar::rounds {
namespace {

// Each round multiplies the times of the rounds before it by this factor. So about the last ten
// rounds count.
constexpr double kTimeMemory = 0.9;
// Each round multiplies the sums for the speed by this factor. So about the last two rounds count.
constexpr double kSpeedMemory = 0.5;

// Maximum number of predictions in one report. It keeps sums over many workers finite.
constexpr int64_t kMaxPredictions = int64_t{1} << 40;

double NonNegativeSeconds(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  return std::isfinite(seconds) ? std::max(seconds, 0.0) : 0.0;
}

}  // namespace

WorkerAssignment::WorkerAssignment(Memory memory, absl::Time now)
    : memory_(std::move(memory)), given_at_(now), idle_since_(now) {}

void WorkerAssignment::BeginLife(const messages::RegisterCall& call, bool is_same_process,
                                 absl::Time now) {
  const WorkerAssignment before = std::exchange(*this, WorkerAssignment());
  memory_.rounds_completed = before.memory_.rounds_completed;
  memory_.residuals_lost = before.memory_.residuals_lost;
  if (is_same_process) {
    memory_.process_began_at = before.memory_.process_began_at;
    memory_.process_registered_at = before.memory_.process_registered_at;
    memory_.start_to_contribution = before.memory_.start_to_contribution;
    memory_.registration_to_contribution = before.memory_.registration_to_contribution;
    computed_samples_ = before.computed_samples_;
    computed_seconds_ = before.computed_seconds_;
  }
  // Both times are by this server's clock. So they leave out the time that the registration needed
  // to arrive.
  if (call.process.age.has_value() && !memory_.process_began_at.has_value() &&
      !memory_.start_to_contribution.has_value()) {
    memory_.process_began_at = now - *call.process.age;
    memory_.process_registered_at = now;
  }
}

void WorkerAssignment::EndLife() {
  memory_.is_waiting = false;
  memory_.is_leaving = false;
  memory_.grant.reset();
  memory_.num_extra_samples = 0;
  memory_.samples_in_hand.clear();
}

void WorkerAssignment::BeginMembership(int64_t progress, absl::Time now) {
  memory_.progress = progress;
  idle_since_ = now;
}

void WorkerAssignment::Give(const messages::Grant& grant, absl::Time now, bool without_samples) {
  memory_.is_waiting = false;
  memory_.grant = grant;
  memory_.num_extra_samples = without_samples ? -grant.num_samples : 0;
  contributed_to_.clear();
  attached_since_grant_.clear();
  given_at_ = now;
  memory_.last_granted = grant.round.value();
}

bool WorkerAssignment::AwaitsContribution(Round round, int num_shards) const {
  return memory_.grant.has_value() && memory_.grant->round == round &&
         static_cast<int>(contributed_to_.size()) < num_shards;
}

bool WorkerAssignment::AwaitsJournal(Round round, int shard) const {
  return memory_.grant.has_value() && memory_.grant->round == round &&
         memory_.grant->kind == messages::Grant::Kind::kTrain && !contributed_to_.contains(shard) &&
         !attached_since_grant_.contains(shard);
}

bool WorkerAssignment::AwaitsJournals(Round round, int num_shards) const {
  for (int shard = 0; shard < num_shards; ++shard) {
    if (AwaitsJournal(round, shard)) return true;
  }
  return false;
}

ReportVerdict WorkerAssignment::Classify(const messages::RoundReport& report,
                                         const job::JobSpec& job) const {
  using Kind = ReportVerdict::Kind;
  if (!memory_.grant.has_value() || memory_.grant->round != report.round) {
    if (report.round.value() <= memory_.last_reported) return {Kind::kRepeat};
    ReportVerdict verdict = {Kind::kNotGranted};
    if (memory_.grant.has_value()) verdict.granted = memory_.grant->round;
    return verdict;
  }
  if (report.num_predictions > kMaxPredictions || report.heldout_predictions > kMaxPredictions ||
      report.heldout_correct > report.heldout_predictions) {
    return {Kind::kTooManyPredictions, kMaxPredictions};
  }
  int64_t most_samples = memory_.grant->num_samples + memory_.num_extra_samples;
  if (job::DefersContributions(job)) {
    most_samples = memory_.samples_in_hand.empty() ? 0 : memory_.samples_in_hand.back();
  }
  const bool has_negative = report.num_predictions < 0 || report.num_samples < 0 ||
                            report.heldout_correct < 0 || report.heldout_predictions < 0;
  if (has_negative || report.num_samples > most_samples) {
    return {Kind::kTooManySamples, most_samples};
  }
  return {Kind::kCurrent};
}

int64_t WorkerAssignment::SamplesInHand() const {
  return std::accumulate(memory_.samples_in_hand.begin(), memory_.samples_in_hand.end(),
                         int64_t{0});
}

int64_t WorkerAssignment::UnreportedSamples(const job::JobSpec& job) const {
  const int64_t granted =
      memory_.grant.has_value() ? memory_.grant->num_samples + memory_.num_extra_samples : 0;
  const bool has_window = job::DefersContributions(job) && !memory_.samples_in_hand.empty();
  return granted + (has_window ? memory_.samples_in_hand.back() : 0);
}

void WorkerAssignment::CountStart(absl::Time now) {
  if (!memory_.process_began_at.has_value()) return;
  memory_.start_to_contribution = now - *std::exchange(memory_.process_began_at, std::nullopt);
  memory_.registration_to_contribution =
      now - *std::exchange(memory_.process_registered_at, std::nullopt);
}

void WorkerAssignment::Complete(const messages::RoundReport& report, const job::JobSpec& job,
                                absl::Time now) {
  memory_.last_reported = report.round.value();
  if (report.lost_residual_rounds > 0) ++memory_.residuals_lost;
  idle_since_ = now;
  if (memory_.grant.has_value()) CountSpeed(*memory_.grant, report);
  if (memory_.grant.has_value() && memory_.grant->kind == messages::Grant::Kind::kTrain) {
    ++memory_.progress;
    ++memory_.rounds_completed;
    if (report.num_samples > 0) CountStart(now);
    if (job::DefersContributions(job)) {
      std::vector<int64_t>& in_hand = memory_.samples_in_hand;
      in_hand.push_back(report.leaves_nothing_in_hand ? 0 : memory_.grant->num_samples);
      // Drops the oldest grant, because its contribution is in all fragments.
      if (static_cast<int>(in_hand.size()) > job.fragments) in_hand.erase(in_hand.begin());
    }
  }
  memory_.grant.reset();
  memory_.num_extra_samples = 0;
  samples_.Add(static_cast<double>(report.num_samples), now);
  CountTimes(report);
}

void WorkerAssignment::CountSpeed(const messages::Grant& grant,
                                  const messages::RoundReport& report) {
  const double seconds = NonNegativeSeconds(report.compute);
  if (grant.num_heldout_samples > 0 || report.num_samples <= 0 || seconds <= 0.0) return;
  computed_samples_ = computed_samples_ * kSpeedMemory + static_cast<double>(report.num_samples);
  computed_seconds_ = computed_seconds_ * kSpeedMemory + seconds;
}

void WorkerAssignment::CountTimes(const messages::RoundReport& report) {
  compute_seconds_ = compute_seconds_ * kTimeMemory + NonNegativeSeconds(report.compute);
  communication_seconds_ =
      communication_seconds_ * kTimeMemory + NonNegativeSeconds(report.communication);
  wait_seconds_ = wait_seconds_ * kTimeMemory + NonNegativeSeconds(report.wait);
  timed_rounds_ = timed_rounds_ * kTimeMemory + 1.0;
}

WorkerAssignment::Rates WorkerAssignment::RatesAt(absl::Time now) const {
  Rates rates;
  rates.samples_per_second = samples_.PerSecond(now);
  const double total = compute_seconds_ + communication_seconds_ + wait_seconds_;
  if (total > 0.0) {
    rates.compute_share = compute_seconds_ / total;
    rates.communication_share = communication_seconds_ / total;
    rates.wait_share = wait_seconds_ / total;
    rates.exposed_per_round = absl::Seconds(communication_seconds_ / timed_rounds_);
  }
  return rates;
}

}  // namespace lodestar::rounds
