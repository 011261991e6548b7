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
#include "common/runtime/ids.h"
#include "server/coordinator/rounds/round_summary.h"

namespace lodestar {

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
