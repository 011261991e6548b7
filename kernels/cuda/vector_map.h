// SPDX-License-Identifier: Apache-2.0

// Elementwise kernels. Each thread handles a group of consecutive elements.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"

namespace lodestar::cuda {

inline constexpr int kMapThreads = 256;

template <int kLanes, typename Operation>
__global__ void __launch_bounds__(kMapThreads) MapKernel(Operation operation, int64_t n) {
  const int64_t first = GlobalThread() * kLanes;
  if (first + kLanes <= n) {
    operation.template Do<kLanes>(first);
  } else {
    for (int64_t i = first; i < n; ++i) operation.template Do<1>(i);
  }
}

// Queues operation.Do<k>(i) for all elements [0, n). Do() is a device function that handles
// elements [i, i + k), where k is kLanes or 1.
template <int kLanes, typename Operation>
cudaError_t Map(const Operation& operation, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  const LaunchConfig config{
      .grid = dim3(static_cast<unsigned>(CeilDiv(n, int64_t{kMapThreads} * kLanes))),
      .block = dim3(kMapThreads),
      .stream = stream};
  return Launch(MapKernel<kLanes, Operation>, config, operation, n);
}

// Does the same as Map(). If not `aligned`, each thread handles only one element instead of kLanes.
template <int kLanes, typename Operation>
cudaError_t MapVectors(const Operation& operation, int64_t n, bool aligned, cudaStream_t stream) {
  return aligned ? Map<kLanes>(operation, n, stream) : Map<1>(operation, n, stream);
}

}  // namespace lodestar::cuda
