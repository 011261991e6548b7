// SPDX-License-Identifier: Apache-2.0

// DivergencePolicy holds flags. They say what to do with a run or a worker if its numbers are not
// finite or are far too large. Plain data.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_spec.h"

namespace lodestar::faults {

enum class DivergenceAction : uint8_t {
  kStop,      // the job fails; its checkpoints stay
  kRollback,  // the cluster goes back to the last good checkpoint, with a lower learning rate
};

struct DivergencePolicy {
  DivergenceAction action = DivergenceAction::kStop;
  // Each rollback multiplies the learning rate by learning_rate_factor. The run is rolled back at
  // most max_rollbacks times.
  double learning_rate_factor = 0.5;
  int max_rollbacks = 5;
  // A process that has sent numbers that are not finite this many times in a row may not register
  // again. A time counts only if the numbers of other workers are finite.
  int nonfinite_limit = 3;
  // A worker's bad rounds are counted over this number of last rounds. In a bad round, its
  // contribution was far longer than those of the others, or pointed in the opposite direction.
  static constexpr int kPoisonWindow = 100;
  // Number of bad rounds that raises an alarm. Fewer bad rounds are normal: once a run has learned
  // its data, a hard sample gives a contribution that is far longer than the others.
  static constexpr int kPoisonAlarm = 20;
  // Maximum number of bad rounds, above which the worker's name is shut out. 0 means no limit.
  int poison_limit = 50;
};

// All three functions return InvalidArgument on failure. The message has the flag, its value and
// the allowed values.
absl::StatusOr<DivergenceAction> ParseDivergenceAction(absl::string_view name);
absl::Status ValidateDivergencePolicy(const DivergencePolicy& policy);
// Checks that the job can use this policy.
absl::Status CheckFits(const DivergencePolicy& policy, const job::JobSpec& job);

}  // namespace lodestar::faults
