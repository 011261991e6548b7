// What becomes of a run, or of a worker, whose numbers are not finite, or far too large: plain
// data, from flags.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/job_spec.h"

namespace lodestar {

enum class DivergenceAction : uint8_t {
  kStop,      // the job fails; what was saved before stays
  kRollback,  // the cluster goes back to the last good checkpoint, with a lower learning rate
};

struct DivergencePolicy {
  DivergenceAction action = DivergenceAction::kStop;
  // Of kRollback: the learning rate is multiplied by it each time, at most this often.
  double learning_rate_factor = 0.5;
  int max_rollbacks = 5;
  // How often in a row one process may send what is not finite, while others do not.
  int nonfinite_limit = 3;
  // In how many of kPoisonWindow rounds a worker may send what is far longer than what others send;
  // then nobody is let in under its name. 0: in all.
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
