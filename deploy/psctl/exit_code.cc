// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/exit_code.h"

#include "common/runtime/remedy.h"

namespace lodestar::psctl {

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
  const Remedy remedy = RemedyFor(error);
  const bool is_final = remedy == Remedy::kGiveUp || remedy == Remedy::kReconnect;
  return is_final ? ExitCodeOfError(error) : kExitRetry;
}

}  // namespace lodestar::psctl
