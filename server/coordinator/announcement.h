// SPDX-License-Identifier: Apache-2.0

// The announcements that the coordinator makes to metrics and logs.
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

namespace lodestar::coordinator {

// The round from which the servers go on. Announced when the servers start, and whenever they go
// back to a checkpoint. `next_round` and later rounds are then trained again, so earlier
// announcements about them no longer count.
struct RestoredPoint {
  Round next_round;
  // Number of samples of the rounds before `next_round`. See RoundSummary::total_samples.
  int64_t trained_samples = 0;
  // True means that the final evaluation was done after the round before `next_round`.
  bool is_evaluated = false;
  // True means that rounds end one after the other, in the order of their numbers. False means that
  // rounds before `next_round` may still be open and end later.
  bool is_in_order = true;
  // True means that a new process goes on from the journal. No worker and no server goes back to an
  // earlier round, and no round is trained again.
  bool is_from_journal = false;
  // Summaries of the rounds that ended last, in the order in which they ended. Set only if
  // is_from_journal: the previous process may have ended before it announced these rounds.
  std::vector<rounds::RoundSummary> last_rounds = {};
  // The newest training loss and held-out loss that are known before `next_round`.
  job::JobLoss loss = {};
};

// The settings that the next rounds are trained with. Announced before the first round after each
// start, and after each change of the settings.
struct DecidedJob {
  job::JobSpec job;
};

// One line for the log about a change, such as one of the membership or of the state.
struct Event {
  std::string text;
};

// A message that asks the operator to act. An alarm that is raised again with the same text is not
// announced again.
struct Alarm {
  std::string text;
};

using Announcement = std::variant<RestoredPoint, DecidedJob, rounds::RoundSummary, Event, Alarm>;

}  // namespace lodestar::coordinator
