// Checks whether a caller may come into the job as it stands. Pure.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "server/coordinator/cluster_state.h"

namespace lodestar {

// Checks that the members are not as many yet as a round takes contributions at most, where a round
// has such a limit: see Membership::CheckRoom(). Error: Unavailable.
absl::Status CheckRoom(const ClusterState& state, absl::string_view name);
// See Membership::CheckNames(). Error: Unavailable, naming the certificate, its names and how many
// are allowed.
absl::Status CheckMoreNames(const ClusterState& state, const RegisterCall& call);
// Checks that this worker, which is about to join, does not rest: see StragglerDetector::RestOf().
// The others go on meanwhile; if they are too few for that, no worker rests. Error: Unavailable,
// saying how long.
absl::Status CheckRest(const ClusterState& state, WorkerId worker, absl::Time now);
// Checks that the caller does not rest because it was dropped when it did not supply the weights
// that others waited for. Error: Unavailable, because the others come first.
absl::Status CheckMayClaimSupply(const ClusterState& state, const RegisterCall& call,
                                 absl::Time now);

// Checks that a worker of a site joins with data whose samples the servers upstream can hand out.
// Error: FailedPrecondition: the data is the worker's own.
absl::Status CheckBrings(const ClusterState& state, const DatasetInfo& data);

// Returns what Membership::LacksAcknowledged() is to know of the worker of this name.
KnownReports KnownReportsOf(const ClusterState& state, absl::string_view name);

}  // namespace lodestar
