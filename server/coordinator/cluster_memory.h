// SPDX-License-Identifier: Apache-2.0

// Converts the state of a cluster to a CoordinatorMemory, and back.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/coordinator_memory.h"

namespace lodestar::coordinator {

// Returns what the next process needs to go on where this process ended. Not set means that the
// next process has to start without the memory of this one.
std::optional<CoordinatorMemory> MemoryOf(const ClusterState& state);

// Fills `state`, which must be new, from a memory that MemoryOf() has returned. Does not set the
// phase. All servers count as away until they connect, and every lease begins at `now`. Errors:
// DataLoss (parts of the memory contradict each other); those of JobModel::Resume().
absl::Status Recall(CoordinatorMemory memory, absl::Time now, ClusterState& state);

}  // namespace lodestar::coordinator
