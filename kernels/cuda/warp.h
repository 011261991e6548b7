// SPDX-License-Identifier: Apache-2.0

// Sums and maxima over the threads of a warp or a block, in a fixed order. For device code.
#pragma once

#include <cuda_runtime.h>

namespace lodestar::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Returns the sum over the warp. Must be called by all 32 lanes, and returns the same value to
// each.
template <typename T>
__device__ inline T WarpSum(T value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// Returns the sum of the values of this lane and of all lower lanes. Must be called by all 32
// lanes.
template <typename T>
__device__ inline T WarpInclusiveSum(T value) {
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    const T before = __shfl_up_sync(kAllLanes, value, offset);
    if (lane >= offset) value += before;
  }
  return value;
}

// Returns the sum over a block of kThreads threads (a multiple of 32), but only to thread 0. Other
// threads get a part of the sum. May be called only once per kernel.
template <int kThreads, typename T>
__device__ inline T BlockSum(T value) {
  constexpr int kWarps = kThreads / kWarpSize;
  __shared__ T sums[kWarps];
  value = WarpSum(value);
  if (threadIdx.x % kWarpSize == 0) sums[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  T total = sums[0];
  for (int warp = 1; warp < kWarps; ++warp) total += sums[warp];
  return total;
}

}  // namespace lodestar::cuda
