// SPDX-License-Identifier: Apache-2.0

// Holds the progress of the job for the status: losses, speeds and what was lost. Pure data.
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

namespace lodestar::rounds {

class JobProgress {
 public:
  // The work that is left.
  struct Outlook {
    int64_t remaining_rounds = 0;
    int64_t tokens_per_sample = 0;  // above 1 means that tokens are counted
    bool is_training = false;       // false means that the pace is 0 and has no estimate
  };

  // Speed of the job. If the job is not training, speeds are 0 and `eta` is not set.
  struct Pace {
    double samples_per_second = 0.0;
    double tokens_per_second = 0.0;
    std::optional<absl::Duration> eta = std::nullopt;
  };

  // What survives the coordinator's process. A checkpoint has only `state`.
  struct Memory {
    checkpoints::ProgressState state;
    absl::Duration usual_round;
    uint64_t rounds_committed_short = 0;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  void Resume(const Memory& memory);
  Memory memory() const { return {Export(), usual_round_, rounds_committed_short_}; }

  // Continues from a checkpoint.
  void Restore(const checkpoints::ProgressState& state);
  checkpoints::ProgressState Export() const { return {loss_, trained_time_}; }

  void OnOpened(absl::Time now);
  // Makes trained_time() leave out the time from now until the next OnOpened().
  void OnStandstill() { counted_until_.reset(); }
  void OnRound(const RoundSummary& summary);
  // Counts a round that has ended without any report.
  void OnRoundLost() { ++rounds_committed_short_; }

  const job::JobLoss& loss() const { return loss_; }
  // Returns the time from the opening of the job's first round to the end of its last round. Leaves
  // out pauses (see OnStandstill()) and the time in which the servers were away.
  absl::Duration trained_time() const { return trained_time_; }
  // Returns the usual time from the opening of a round to its last report.
  absl::Duration usual_round() const { return usual_round_; }
  // Returns the newest value of each metric that workers have reported, by name.
  const std::map<std::string, MetricSnapshot>& metrics() const { return metrics_; }
  int64_t metrics_dropped() const { return metrics_dropped_; }
  // Returns the number of rounds that ended without the reports of some of their workers.
  uint64_t rounds_committed_short() const { return rounds_committed_short_; }
  Pace PaceOf(const Outlook& outlook, absl::Time now) const;

 private:
  // Stores the metrics of the round. Beyond kMaxMetricsOfRound names, removes the oldest values.
  void NoteMetrics(const RoundSummary& summary);

  job::JobLoss loss_;
  std::map<std::string, MetricSnapshot> metrics_;
  int64_t metrics_dropped_ = 0;
  absl::Duration trained_time_;
  // trained_time_ includes the time until this point. Not set means that time counts again from the
  // next OnOpened().
  std::optional<absl::Time> counted_until_;
  absl::Duration usual_round_;
  stragglers::RateMeter samples_;
  stragglers::RateMeter rounds_;
  uint64_t rounds_committed_short_ = 0;
};

}  // namespace lodestar::rounds
