// SPDX-License-Identifier: Apache-2.0

// Starts kernels. For .cu.cc files.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace lodestar::cuda {

struct LaunchConfig {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic shared memory; up to the card's maximum for a block
  cudaStream_t stream = nullptr;
};

// Queues `kernel(args...)`. An empty grid queues nothing.
template <typename... Params, typename... Args>
cudaError_t Launch(void (*kernel)(Params...), const LaunchConfig& config, Args&&... args) {
  if (config.grid.x == 0 || config.grid.y == 0 || config.grid.z == 0) return cudaSuccess;
  // Kernels that need more dynamic shared memory than this must ask the runtime for it.
  constexpr size_t kDefaultSharedBytes = 48 * 1024;
  if (config.shared_bytes > kDefaultSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(config.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t launch = {};
  launch.gridDim = config.grid;
  launch.blockDim = config.block;
  launch.dynamicSmemBytes = config.shared_bytes;
  launch.stream = config.stream;
  return cudaLaunchKernelEx(&launch, kernel, std::forward<Args>(args)...);
}

}  // namespace lodestar::cuda
