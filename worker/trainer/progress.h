// The worker's progress line: round, loss, throughput, share of time spent waiting, time left.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "worker/client/work_grant.h"

namespace lodestar {

// Collects reports and says now and then how training goes. Not thread-safe; time is passed in.
class Progress {
 public:
  // `tokens_per_sample` > 1: throughput is told in tokens/s. One line per `interval` at most.
  Progress(int64_t tokens_per_sample, absl::Duration interval)
      : tokens_per_sample_(tokens_per_sample), interval_(interval) {}

  // Takes in the report of one round of a job of total_rounds; returns the line to show, or an
  // empty string.
  std::string Add(absl::Time now, const RoundReport& report, int64_t total_rounds);

 private:
  std::string Line(absl::Time now, const RoundReport& report, int64_t total_rounds) const;

  const int64_t tokens_per_sample_;
  const absl::Duration interval_;
  absl::Time window_start_ = absl::InfinitePast();
  int64_t window_samples_ = 0;
  double window_loss_sum_ = 0.0;
  int64_t window_predictions_ = 0;
  absl::Duration window_waiting_;
  absl::Duration window_evaluation_;
  Round window_first_round_;
};

}  // namespace lodestar
