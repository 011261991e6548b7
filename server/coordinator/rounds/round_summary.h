// SPDX-License-Identifier: Apache-2.0

// The summary of a round that is over, for its announcement. Plain data.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/messages/program_metrics.h"
#include "common/runtime/ids.h"

namespace lodestar::rounds {

// How workers spent the time of a round, by their own clocks. See RoundReport.
struct RoundTimes {
  absl::Duration compute;
  absl::Duration communication;  // exposed; see RoundReport
  absl::Duration wait;
  friend bool operator==(const RoundTimes&, const RoundTimes&) = default;
};

// A round that is over. If it has the result of an evaluation, the weights at the beginning of the
// round were evaluated. These weights have had `round` updates.
struct RoundSummary {
  Round round;
  bool trained = true;                 // false: the final evaluation
  std::optional<double> train_loss;    // nats per prediction, before the update
  std::optional<double> heldout_loss;  // nats per prediction
  std::optional<double> heldout_accuracy;
  bool heldout_complete = true;   // false if a part of the evaluation set was lost with a worker
  int64_t total_rounds = 0;       // rounds of the job, and rounds lost so far
  int64_t samples = 0;            // samples reported in this round
  int64_t total_samples = 0;      // samples reported in the job so far
  int64_t tokens_per_sample = 0;  // 1 means that samples are not made of tokens. 0 means not known.
  double epoch = 0.0;             // samples handed out, in passes over the data; 0 means not known
  double learning_rate = 0.0;
  absl::Duration duration;  // from the opening to the completion
  absl::Time completed_at;
  RoundTimes worker_times = {};    // means over the workers that reported
  absl::Duration trained_time;     // of the job so far, see JobProgress
  int workers = 0;                 // workers that reported
  bool committed_short = false;    // true if a part of the roster did not report
  messages::Metrics metrics = {};  // from programs; means over the workers that sent them
  int64_t metrics_dropped = 0;     // values that were not finite, or were too many
  friend bool operator==(const RoundSummary&, const RoundSummary&) = default;
};

// The newest value of a metric that programs have reported, and its round.
struct MetricSnapshot {
  double value = 0.0;
  Round round;
};

}  // namespace lodestar::rounds
