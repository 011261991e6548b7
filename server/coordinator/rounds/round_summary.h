// What is told of a round that is over. Plain data.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/messages/program_metrics.h"
#include "common/runtime/ids.h"

namespace lodestar {

// What workers did with the time of a round, by their own clocks: see RoundReport.
struct RoundTimes {
  absl::Duration compute;
  absl::Duration communication;  // exposed
  absl::Duration wait;
  friend bool operator==(const RoundTimes&, const RoundTimes&) = default;
};

// A round whose contributions are all in. With an evaluation: of the weights it started from, so
// after `round` updates.
struct RoundSummary {
  Round round;
  bool trained = true;                 // false: the final evaluation
  std::optional<double> train_loss;    // nats per prediction, before the update
  std::optional<double> heldout_loss;  // nats per prediction
  std::optional<double> heldout_accuracy;
  bool heldout_complete = true;   // no part of the evaluation set was lost with a worker
  int64_t total_rounds = 0;       // of the job, with those that were lost so far
  int64_t samples = 0;            // of this round, reported
  int64_t total_samples = 0;      // of the job, reported
  int64_t tokens_per_sample = 0;  // 1 means that samples are not made of tokens. 0 means not known.
  double epoch = 0.0;             // cursor over samples per epoch; 0 if unknown
  double learning_rate = 0.0;
  absl::Duration duration;  // opening to completion
  absl::Time completed_at;
  RoundTimes worker_times = {};  // means over the workers that reported
  absl::Duration trained_time;   // of the job so far, see JobProgress
  int workers = 0;               // that reported
  bool committed_short = false;  // without a part of the roster
  Metrics metrics = {};          // that programs told, means over those that did
  int64_t metrics_dropped = 0;   // values: not finite, or too many
  friend bool operator==(const RoundSummary&, const RoundSummary&) = default;
};

// What programs have told of a round.
struct MetricSnapshot {
  double value = 0.0;
  Round round;
};

}  // namespace lodestar
