// What metrics and logs are told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/job/job_loss.h"
#include "common/job/job_spec.h"
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

// From where the servers go on: at their start, and whenever they go back. What was told of rounds
// from there on counts no more; they come again.
struct RestoredPoint {
  Round next_round;
  int64_t trained_samples = 0;  // of the rounds before, as RoundSummary::total_samples counts
  bool is_evaluated = false;    // the final evaluation of the rounds before was done
  // Rounds end one after the other. Else some before `next_round` may come to their end after it.
  bool is_in_order = true;
  // The process alone is new: no worker and no server goes back, and no round comes again.
  bool is_from_journal = false;
  // If is_from_journal: the last of the rounds that are over, in the order in which they ended. The
  // process before may have ended before it had told of them.
  std::vector<RoundSummary> last_rounds = {};
  // The newest losses of the rounds before.
  JobLoss loss = {};
};

// The settings that the next rounds are trained with. It precedes them after each start, and each
// time that the settings have changed.
struct DecidedJob {
  JobSpec job;
};

// One line for the log, when something changed: membership, state.
struct Event {
  std::string text;
};

// An operator should act; said once per text, however often it is raised.
struct Alarm {
  std::string text;
};

using Announcement = std::variant<RestoredPoint, DecidedJob, RoundSummary, Event, Alarm>;

}  // namespace lodestar
