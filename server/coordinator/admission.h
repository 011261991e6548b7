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
// Checks that a worker that is about to join does not have to rest: see
// StragglerDetector::RestOf(). If the other members are too few to go on without this worker, it
// need not rest. Error: Unavailable (says for how long the worker still rests).
absl::Status CheckRest(const ClusterState& state, WorkerId worker, absl::Time now);
// Checks that the caller may supply the initial weights. If a worker was dropped because it held up
// the others, it has to rest first, so that another worker can supply the weights. Error:
// Unavailable (the worker still rests).
absl::Status CheckMayClaimSupply(const ClusterState& state, const messages::RegisterCall& call,
                                 absl::Time now);

// Checks that a worker of a site does not bring data of its own: the servers upstream hand out the
// samples, and can do so only for data that all workers have. Error: FailedPrecondition
// (--data_partition=own).
absl::Status CheckBrings(const ClusterState& state, const messages::DatasetInfo& data);

// Returns what Membership::LacksAcknowledged() has to know about the worker `name`.
membership::KnownReports KnownReportsOf(const ClusterState& state, absl::string_view name);

}  // namespace lodestar::coordinator
