// Takes the memory out of a cluster's state, and makes the state that goes on from a memory.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/coordinator_memory.h"

namespace lodestar {

// Returns no memory if a process that is started anew is to begin as if this one had never been.
std::optional<CoordinatorMemory> MemoryOf(const ClusterState& state);

// All that MemoryOf() has told, into a state that has nothing yet; the phase is the caller's. All
// servers are away until they connect, and leases are whole. Errors: DataLoss for what does not fit
// together; those of JobModel::Resume().
absl::Status Recall(CoordinatorMemory memory, absl::Time now, ClusterState& state);

}  // namespace lodestar
