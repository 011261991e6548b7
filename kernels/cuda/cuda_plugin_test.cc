// The real plugin: that it loads, and that the error says why where there is no card. What it
// computes on a card is tested by tests/gpu.
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
  // Found, with the version asked for; what is missing is a driver, a card or cuBLASLt.
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
