// The exit codes of psctl, for scripts. From 128 on the same command may succeed later.
#pragma once

#include "absl/status/status.h"
#include "deploy/psctl/cluster_health.h"

namespace lodestar {

inline constexpr int kExitError = 1;
inline constexpr int kExitBadFlags = 2;
inline constexpr int kExitNeedsOperator = 3;  // of status: see ClusterHealth; of stop: NOT SAVED
inline constexpr int kExitRetry = 129;        // nobody answered, or not now
inline constexpr int kExitStandsStill = 131;  // of status: see ClusterHealth

int ExitCodeOf(ClusterHealth health);
// Of an error on this machine: the same command meets it again.
int ExitCodeOfError(const absl::Status& error);
// Of an error that a call to a server has brought.
int ExitCodeOfCall(const absl::Status& error);

}  // namespace lodestar
