// SPDX-License-Identifier: Apache-2.0

// The exit codes of psctl, for scripts. A code of 128 or more means that the same command may
// succeed later.
#pragma once

#include "absl/status/status.h"
#include "deploy/psctl/cluster_health.h"

namespace lodestar::psctl {

inline constexpr int kExitError = 1;
inline constexpr int kExitBadFlags = 2;
// Exit code of `psctl status` for ClusterHealth::kNeedsOperator. Exit code of `psctl stop` if the
// end of the job could not be saved ("NOT SAVED").
inline constexpr int kExitNeedsOperator = 3;
inline constexpr int kExitRetry = 129;        // No server answered, or the server cannot do it now.
inline constexpr int kExitStandsStill = 131;  // `psctl status` returns this for kStandsStill.

int ExitCodeOf(ClusterHealth health);
// Returns the code for an error on this machine. The same command would have this error again.
int ExitCodeOfError(const absl::Status& error);
// Returns the code for an error of a call to a server.
int ExitCodeOfCall(const absl::Status& error);

}  // namespace lodestar::psctl
