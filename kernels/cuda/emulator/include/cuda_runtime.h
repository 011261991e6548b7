// SPDX-License-Identifier: Apache-2.0

// The part of <cuda_runtime.h> that .cu.cc files use, without a CUDA toolkit.
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime_api.h"
#include "kernels/cuda/emulator/device_language.h"

namespace lodestar::emulator {

// Queues a kernel whose threads run `body`. `kernel` identifies the kernel.
cudaError_t LaunchKernel(const void* kernel, const cudaLaunchConfig_t& config,
                         std::function<void()> body);

}  // namespace lodestar::emulator

// NOLINTBEGIN: the names are CUDA's.
template <typename... Params, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  return lodestar::emulator::LaunchKernel(
      reinterpret_cast<const void*>(kernel), *config,
      [kernel, arguments = std::tuple<std::decay_t<Params>...>(std::forward<Args>(args)...)] {
        std::apply(kernel, arguments);
      });
}
// NOLINTEND
