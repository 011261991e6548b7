// A stable sort of small integers with their positions, without atomics: equal input, equal output.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::cuda {

// Device memory.
struct SortedKeys {
  const int32_t* keys;       // [n], ascending
  const int32_t* positions;  // [n], where each was; ascending among equal keys
};

// Device memory, 16-byte aligned.
size_t SortKeysWorkspaceBytes(int64_t n);
// Sorts keys [n], n < 2^30; those outside [0, end) count as `end` and come last. The result lies
// in the workspace.
cudaError_t SortKeys(SortedKeys* sorted, const int32_t* keys, int64_t n, int32_t end,
                     void* workspace, cudaStream_t stream);

}  // namespace lodestar::cuda
