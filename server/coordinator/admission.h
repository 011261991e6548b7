// SPDX-License-Identifier: Apache-2.0

// Checks whether a worker may register or join, given the present state of the job. Pure.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "server/coordinator/cluster_state.h"

namespace lodestar::coordinator {

// Checks that there is room for one more member. Only a robust mean has a limit: the number of
// contributions that it can combine. See Membership::CheckRoom(). Error: Unavailable.
absl::Status CheckRoom(const ClusterState& state, absl::string_view name);
// Checks that the certificate of the caller may have one more worker name in the job: see
// Membership::CheckNames(). Error: Unavailable (names the certificate, its workers and the limit).
absl::Status CheckMoreNames(const ClusterState& state, const messages::RegisterCall& call);
// Checks that no rest keeps the worker from joining. A worker that has held up the others must rest
// for some time before it joins again: see StragglerDetector::RestOf(). If the other members are
// too few to go on without this worker, it need not rest. Error: Unavailable (says how long the
// rest still lasts).
absl::Status CheckRest(const ClusterState& state, WorkerId worker, absl::Time now);
// Checks that the caller may become the worker that supplies the initial weights. A worker that was
// dropped because it held up the others may not, until its rest is over. Meanwhile another worker
// can supply the weights. Error: Unavailable (the caller still rests).
absl::Status CheckMayClaimSupply(const ClusterState& state, const messages::RegisterCall& call,
                                 absl::Time now);

// Checks that a worker of a site has no data of its own (--data_partition=own). The servers
// upstream choose the samples of a site, from the data that all workers of the job have. Error:
// FailedPrecondition.
absl::Status CheckBrings(const ClusterState& state, const messages::DatasetInfo& data);

// Returns what the servers know of acknowledged reports when the worker `name` registers. It is an
// argument of Membership::LacksAcknowledged().
membership::KnownReports KnownReportsOf(const ClusterState& state, absl::string_view name);

}  // namespace lodestar::coordinator
