// The exit codes of psctl, for scripts. From 128 on the same command may succeed later.
#pragma once

#include "absl/status/status.h"
#include "deploy/psctl/cluster_health.h"

namespace lodestar {

inline constexpr int kExitError = 1;
inline constexpr int kExitBadFlags = 2;
// For status see ClusterHealth. For stop it means NOT SAVED.
inline constexpr int kExitNeedsOperator = 3;
inline constexpr int kExitRetry = 129;        // No server answered, or the server cannot do it now.
inline constexpr int kExitStandsStill = 131;  // For status see ClusterHealth.

int ExitCodeOf(ClusterHealth health);
// The code for an error on this machine: the same command meets it again.
int ExitCodeOfError(const absl::Status& error);
// The code for an error that a call to a server has brought.
int ExitCodeOfCall(const absl::Status& error);

}  // namespace lodestar
