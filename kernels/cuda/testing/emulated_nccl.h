// SPDX-License-Identifier: Apache-2.0

// NCCL between emulated cards, with the functions that a group of cards uses. Checks the order of
// calls.
#pragma once

#include <cstdint>

#include "kernels/cuda/nccl.h"

namespace lodestar::cuda {

// Returns the number of operations that were called since the process began. Does not count
// operations between GroupStart() and GroupEnd().
int64_t num_nccl_operations();

// Says whether later operations wait on their cards until their communicators are aborted, as if a
// member were missing. If such an operation runs on its card before the abort, the process ends.
void SetNcclOperationsWait(bool wait);
// From now on, communicators report this error. 0 means no error.
void SetNcclAsyncError(int error);

// Says whether the ranks fail to connect from now on. In that case the GroupEnd() after their first
// operations returns an error.
void SetNcclFirstOperationsFail(bool fail);

// Returns functions that work. Communicators that were created together must be used by one thread
// each.
absl::StatusOr<NcclFunctions> LoadEmulatedNccl();
// Returns functions that cannot create communicators.
absl::StatusOr<NcclFunctions> LoadBrokenNccl();
absl::StatusOr<NcclFunctions> LoadNoNccl();

}  // namespace lodestar::cuda
