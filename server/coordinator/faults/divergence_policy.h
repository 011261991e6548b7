// The flags that say what becomes of a run, or of a worker, whose numbers are not finite or far too
// large. Plain data.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job/job_spec.h"

namespace lodestar {

enum class DivergenceAction : uint8_t {
  kStop,      // the job fails; what was saved before stays
  kRollback,  // the cluster goes back to the last good checkpoint, with a lower learning rate
};

struct DivergencePolicy {
  DivergenceAction action = DivergenceAction::kStop;
  // kRollback multiplies the learning rate by this factor each time, at most max_rollbacks times.
  double learning_rate_factor = 0.5;
  int max_rollbacks = 5;
  // How often in a row one process may send what is not finite, while others do not.
  int nonfinite_limit = 3;
  // A worker may send what is far longer than what others send in so many of kPoisonWindow rounds.
  // Beyond that its name is shut out. 0 means that there is no limit.
  static constexpr int kPoisonWindow = 100;
  // Rounds of them that are an alarm. Fewer happen: once a run has learned its data, a hard sample
  // is far beyond the rest.
  static constexpr int kPoisonAlarm = 20;
  int poison_limit = 50;
};

// Errors of all: InvalidArgument naming the flag, the value and what is allowed.
absl::StatusOr<DivergenceAction> ParseDivergenceAction(absl::string_view name);
absl::Status ValidateDivergencePolicy(const DivergencePolicy& policy);
// Whether a job can have it.
absl::Status CheckFits(const DivergencePolicy& policy, const JobSpec& job);

}  // namespace lodestar
