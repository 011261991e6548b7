#include "deploy/psctl/exit_code.h"

#include "common/remedy.h"

namespace lodestar {

int ExitCodeOf(ClusterHealth health) {
  switch (health) {
    case ClusterHealth::kGood:
      return 0;
    case ClusterHealth::kStandsStill:
      return kExitStandsStill;
    case ClusterHealth::kNeedsOperator:
      return kExitNeedsOperator;
  }
  return kExitError;
}

int ExitCodeOfError(const absl::Status& error) {
  return absl::IsInvalidArgument(error) ? kExitBadFlags : kExitError;
}

int ExitCodeOfCall(const absl::Status& error) {
  return RemedyFor(error) == Remedy::kGiveUp ? ExitCodeOfError(error) : kExitRetry;
}

}  // namespace lodestar
