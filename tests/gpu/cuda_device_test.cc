// SPDX-License-Identifier: Apache-2.0

// Runs the conformance suite of devices on a real GPU, also at the shapes of GPT-2, in fp32 and
// bf16. Each test runs with cuBLASLt's epilogues, without them, and with whichever epilogues and
// algorithms are measured to be faster.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "kernels/testing/device_conformance.h"

namespace lodestar {
namespace {

using kernels::DeviceConformanceTest;
using kernels::Gpt2ConformanceTest;

std::unique_ptr<kernels::Device> MakeCuda(kernels::DType compute, factory::FusionPolicy fusion) {
  factory::DeviceOptions options{.kind = "cuda", .compute = compute, .fusion = fusion};
  if (fusion == factory::FusionPolicy::kMeasure) options.tuning = "";
  auto device = factory::MakeDevice(options, /*why_not_cuda=*/nullptr);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return nullptr;
  }
  return *std::move(device);
}

// Returns cases that are named after values of --dtype and --fusion.
std::vector<kernels::DeviceCase> Cases(const std::vector<factory::FusionPolicy>& policies) {
  std::vector<kernels::DeviceCase> cases;
  for (const kernels::DType compute : {kernels::DType::kF32, kernels::DType::kBf16}) {
    for (const factory::FusionPolicy fusion : policies) {
      const char* const name = fusion == factory::FusionPolicy::kMeasure  ? "Measure"
                               : fusion == factory::FusionPolicy::kAlways ? "Always"
                                                                          : "Never";
      cases.push_back({std::string(compute == kernels::DType::kF32 ? "Fp32" : "Bf16") + name,
                       [compute, fusion] { return MakeCuda(compute, fusion); }});
    }
  }
  return cases;
}

std::string NameOf(const testing::TestParamInfo<kernels::DeviceCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformanceTest,
                         testing::ValuesIn(Cases({factory::FusionPolicy::kNever,
                                                  factory::FusionPolicy::kAlways,
                                                  factory::FusionPolicy::kMeasure})),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Cuda, Gpt2ConformanceTest,
                         testing::ValuesIn(Cases({factory::FusionPolicy::kNever,
                                                  factory::FusionPolicy::kAlways})),
                         NameOf);

}  // namespace
}  // namespace lodestar
