// SPDX-License-Identifier: Apache-2.0

// NCCL between emulated cards: the functions that a group of cards uses. The order of calls is
// checked.
#pragma once

#include <cstdint>

#include "kernels/cuda/nccl.h"

namespace lodestar::cuda {

// Returns the number of operations that were called since the process began. Operations in a group
// are not counted.
int64_t num_nccl_operations();

// Makes operations that are queued from now on wait on their cards for a member that never comes.
// They end when their communicators are aborted. If an operation runs before that, the process
// ends.
void SetNcclOperationsWait(bool wait);
// Makes communicators report this error from now on. 0 means no error.
void SetNcclAsyncError(int error);

// If `fail` is true, the first operations fail from now on, so that cards are not connected. The
// call that ends their group returns the error.
void SetNcclFirstOperationsFail(bool fail);

// Returns functions that work. Each communicator of a clique must be used by a thread of its own.
absl::StatusOr<NcclFunctions> LoadEmulatedNccl();
// Returns functions whose communicators cannot be made.
absl::StatusOr<NcclFunctions> LoadBrokenNccl();
absl::StatusOr<NcclFunctions> LoadNoNccl();

}  // namespace lodestar::cuda
