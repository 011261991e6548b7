// Runs the conformance suite of devices on a real GPU, also at the shapes of GPT-2, in fp32 and
// bf16. Each test runs with cuBLASLt's epilogues, without them, and with the epilogues and
// algorithms that are measured to be faster.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "kernels/testing/device_conformance.h"

namespace lodestar {
namespace {

std::unique_ptr<Device> MakeCuda(DType compute, FusionPolicy fusion) {
  DeviceOptions options{.kind = "cuda", .compute = compute, .fusion = fusion};
  if (fusion == FusionPolicy::kMeasure) options.tuning = "";
  auto device = MakeDevice(options, /*why_not_cuda=*/nullptr);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return nullptr;
  }
  return *std::move(device);
}

// Returns cases that are named after values of --dtype and --fusion.
std::vector<DeviceCase> Cases(const std::vector<FusionPolicy>& policies) {
  std::vector<DeviceCase> cases;
  for (const DType compute : {DType::kF32, DType::kBf16}) {
    for (const FusionPolicy fusion : policies) {
      const char* const name = fusion == FusionPolicy::kMeasure  ? "Measure"
                               : fusion == FusionPolicy::kAlways ? "Always"
                                                                 : "Never";
      cases.push_back({std::string(compute == DType::kF32 ? "Fp32" : "Bf16") + name,
                       [compute, fusion] { return MakeCuda(compute, fusion); }});
    }
  }
  return cases;
}

std::string NameOf(const testing::TestParamInfo<DeviceCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformanceTest,
                         testing::ValuesIn(Cases({FusionPolicy::kNever, FusionPolicy::kAlways,
                                                  FusionPolicy::kMeasure})),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Cuda, Gpt2ConformanceTest,
                         testing::ValuesIn(Cases({FusionPolicy::kNever, FusionPolicy::kAlways})),
                         NameOf);

}  // namespace
}  // namespace lodestar
