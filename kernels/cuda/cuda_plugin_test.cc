// SPDX-License-Identifier: Apache-2.0

// Tests that the real plugin can be loaded, and that on a machine without a card the error gives
// the reason. tests/gpu tests the results on a card.
#include "kernels/factory/cuda_plugin.h"

#include <iostream>

#include "gtest/gtest.h"

namespace lodestar::cuda {
namespace {

TEST(CudaPluginTest, LoadsOrSaysWhyNot) {
  const auto device = factory::LoadCudaDevice({});
  const auto count = factory::CountCudaDevices();
  EXPECT_EQ(count.status().code(), device.status().code()) << count.status();
  if (device.ok()) {
    std::cout << "on " << (*device)->capabilities().name << "\n";
    return;
  }
  std::cout << device.status() << "\n";
#ifdef LODESTAR_HAS_CUDA_PLUGIN
  // The plugin is found and has the right version. Only a driver, a card or cuBLASLt is missing.
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(device.status().message().find(
                factory::HasCudaDriver() ? "no CUDA device: CUDA device 0: cudaGetDeviceCount"
                                         : "no CUDA device: this machine has no NVIDIA driver"),
            absl::string_view::npos);
#else
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
#endif
}

}  // namespace
}  // namespace lodestar::cuda
