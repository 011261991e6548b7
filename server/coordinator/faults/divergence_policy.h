// SPDX-License-Identifier: Apache-2.0

// DivergencePolicy holds flags. They say what happens to a run or to a worker if its numbers are
// not finite or are far too large. Plain data.
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
  // kRollback multiplies the learning rate by this factor each time, at most max_rollbacks times.
  double learning_rate_factor = 0.5;
  int max_rollbacks = 5;
  // Maximum number of times in a row that a process may send numbers that are not finite. Only
  // times at which the numbers of other workers are finite count.
  int nonfinite_limit = 3;
  // If a worker's contributions are far longer than those of the others in more than poison_limit
  // of the last kPoisonWindow rounds, its name is shut out. A poison_limit of 0 means no limit.
  static constexpr int kPoisonWindow = 100;
  // An alarm is raised if a worker's contributions are far too long in this number of the last
  // kPoisonWindow rounds. Fewer rounds are normal: once a run has learned its data, a hard sample
  // gives a contribution that is far longer than the rest.
  static constexpr int kPoisonAlarm = 20;
  int poison_limit = 50;
};

// Errors of all three functions: InvalidArgument, naming the flag, its value and the allowed
// values.
absl::StatusOr<DivergenceAction> ParseDivergenceAction(absl::string_view name);
absl::Status ValidateDivergencePolicy(const DivergencePolicy& policy);
// Checks that the job can use this policy.
absl::Status CheckFits(const DivergencePolicy& policy, const job::JobSpec& job);

}  // namespace lodestar::faults
