// How kernels are started and how they get dynamic shared memory: the only place, with
// tensor_core.h, where a CUDA compiler and the host's (kernels/cuda/emulator) differ. For .cu.cc
// files.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#ifdef LODESTAR_CUDA_EMULATED
#include <tuple>

#include "kernels/cuda/emulator/launch.h"
#endif

namespace lodestar {

struct LaunchConfig {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic; up to what the card allows a block
  cudaStream_t stream = nullptr;
};

// Queues `kernel(args...)`. Nothing is queued for an empty grid.
template <typename... Params, typename... Args>
cudaError_t Launch(void (*kernel)(Params...), const LaunchConfig& config, Args&&... args) {
  if (config.grid.x == 0 || config.grid.y == 0 || config.grid.z == 0) return cudaSuccess;
#ifdef LODESTAR_CUDA_EMULATED
  return emulator::LaunchKernel(
      config.grid, config.block, config.shared_bytes, config.stream,
      [kernel, arguments = std::tuple<std::decay_t<Params>...>(std::forward<Args>(args)...)] {
        std::apply(kernel, arguments);
      });
#else
  // A block gets this much without asking.
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
#endif
}

// The block's dynamic shared memory, 128-byte aligned.
template <typename T>
__device__ __forceinline__ T* DynamicShared() {
#ifdef LODESTAR_CUDA_EMULATED
  return reinterpret_cast<T*>(emulator::DynamicSharedMemory());
#else
  extern __shared__ __align__(128) unsigned char lodestar_dynamic_shared[];
  return reinterpret_cast<T*>(lodestar_dynamic_shared);
#endif
}

}  // namespace lodestar
