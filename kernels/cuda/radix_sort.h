// SPDX-License-Identifier: Apache-2.0

// Sorts small integers together with their positions. Equal keys keep their order. Uses no atomics,
// so equal inputs give equal outputs.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::cuda {

// The sorted keys, as arrays in device memory.
struct SortedKeys {
  const int32_t* keys;       // [n], ascending
  const int32_t* positions;  // [n], old index of each key; ascending among equal keys
};

// Returns the size of the workspace, which is device memory, 16-byte aligned.
size_t SortKeysWorkspaceBytes(int64_t n);
// Sorts keys [n], where n < 2^30. Keys outside [0, end) count as `end` and come last. The result is
// in the workspace.
cudaError_t SortKeys(SortedKeys* sorted, const int32_t* keys, int64_t n, int32_t end,
                     void* workspace, cudaStream_t stream);

}  // namespace lodestar::cuda
