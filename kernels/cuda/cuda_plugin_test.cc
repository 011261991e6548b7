// The real plugin: that it loads and, where this machine has a card, the conformance suite on it in
// every dtype that it computes in. Without a card, that the error says why.
#include "kernels/cuda_plugin.h"

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/device_conformance.h"

namespace lodestar {
namespace {

std::vector<DeviceCase> CardCases() {
  std::vector<DeviceCase> cases;
  for (DType compute : {DType::kF32, DType::kBf16}) {
    const auto make = [compute] { return LoadCudaDevice({.compute = compute}); };
    if (!make().ok()) continue;
    cases.push_back({compute == DType::kF32 ? "F32" : "Bf16", [make] { return *make(); }});
  }
  return cases;
}

TEST(CudaPluginTest, LoadsOrSaysWhyNot) {
  const auto device = LoadCudaDevice({});
  if (device.ok()) {
    std::cout << "on " << (*device)->capabilities().name << "\n";
    return;
  }
  std::cout << device.status() << "\n";
#ifdef LODESTAR_HAS_CUDA_PLUGIN
  // Found, with the version asked for; what is missing is a driver, a card or cuBLASLt.
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(device.status().message().find("no CUDA device: CUDA device 0: cudaGetDeviceCount"),
            absl::string_view::npos);
#else
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
#endif
}

// Without a card there are no cases.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceConformanceTest);
INSTANTIATE_TEST_SUITE_P(Card, DeviceConformanceTest, testing::ValuesIn(CardCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lodestar
