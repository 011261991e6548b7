// What kernels/cuda/launch.h needs of the emulator.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

namespace lodestar::emulator {

// Queues a kernel whose threads run `body`.
cudaError_t LaunchKernel(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                         std::function<void()> body);

inline std::byte* DynamicSharedMemory() { return Block::Running().dynamic_shared(); }

}  // namespace lodestar::emulator
