// NCCL between emulated cards: what a group of cards uses of it, with its order of calls checked.
#pragma once

#include <cstdint>

#include "kernels/cuda/nccl.h"

namespace lodestar::cuda {

// Returns the number of calls of the functions below since the process began, without those in a
// group.
int64_t num_nccl_operations();

// Operations that are queued from here on wait on their cards for a member that does not come: they
// end when their communicators are aborted, and the process ends if they run before.
void SetNcclOperationsWait(bool wait);
// Communicators have that error from here on; 0 means none.
void SetNcclAsyncError(int error);

// Cards are not connected from here on: the end of a group says so.
void SetNcclFirstOperationsFail(bool fail);

// Functions that work; communicators of one clique are used by a thread each.
absl::StatusOr<NcclFunctions> LoadEmulatedNccl();
// Returns functions whose communicators cannot be made.
absl::StatusOr<NcclFunctions> LoadBrokenNccl();
absl::StatusOr<NcclFunctions> LoadNoNccl();

}  // namespace lodestar::cuda
