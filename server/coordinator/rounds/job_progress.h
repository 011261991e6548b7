// How the job goes: losses, speeds and what was lost, for the status. Pure data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/job/job_loss.h"
#include "server/coordinator/checkpoints/coordinator_state.h"
#include "server/coordinator/rounds/round_summary.h"
#include "server/coordinator/stragglers/rate_meter.h"

namespace lodestar {

class JobProgress {
 public:
  // What is still to be done, and by which workers.
  struct Outlook {
    int64_t remaining_rounds = 0;
    int64_t tokens_per_sample = 0;  // above 1: tokens are counted
    bool is_training = false;       // else nothing moves, and nothing is estimated
  };

  // Zeros, and no estimate, mean that nothing moves.
  struct Pace {
    double samples_per_second = 0.0;
    double tokens_per_second = 0.0;
    std::optional<absl::Duration> eta = std::nullopt;
  };

  // Beside what a checkpoint has.
  struct Memory {
    ProgressState state;
    absl::Duration usual_round;
    uint64_t rounds_committed_short = 0;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  void Resume(const Memory& memory);
  Memory memory() const { return {Export(), usual_round_, rounds_committed_short_}; }

  // Goes on from a checkpoint.
  void Restore(const ProgressState& state);
  ProgressState Export() const { return {loss_, trained_time_}; }

  void OnOpened(absl::Time now);
  // The time until the next round is opened is none of training.
  void OnStandstill() { counted_until_.reset(); }
  void OnRound(const RoundSummary& summary);
  // A round is over whose work no worker finished.
  void OnRoundLost() { ++rounds_committed_short_; }

  const JobLoss& loss() const { return loss_; }
  // From the opening of the job's first round to the end of its last one, without the time that the
  // servers were away.
  absl::Duration trained_time() const { return trained_time_; }
  // How long rounds of late were open, from the opening to the last report.
  absl::Duration usual_round() const { return usual_round_; }
  // Returns the last metrics of each name, as programs told them.
  const std::map<std::string, MetricSnapshot>& metrics() const { return metrics_; }
  int64_t metrics_dropped() const { return metrics_dropped_; }
  // Returns the number of rounds that went on without a part of their workers.
  uint64_t rounds_committed_short() const { return rounds_committed_short_; }
  Pace PaceOf(const Outlook& outlook, absl::Time now) const;

 private:
  // Keeps those of kMaxMetricsOfRound names: the newest.
  void NoteMetrics(const RoundSummary& summary);

  JobLoss loss_;
  std::map<std::string, MetricSnapshot> metrics_;
  int64_t metrics_dropped_ = 0;
  absl::Duration trained_time_;
  std::optional<absl::Time> counted_until_;  // of trained_time_; none before a round was opened
  absl::Duration usual_round_;
  RateMeter samples_;
  RateMeter rounds_;
  uint64_t rounds_committed_short_ = 0;
};

}  // namespace lodestar
