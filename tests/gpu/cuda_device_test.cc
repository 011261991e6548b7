// The conformance suite of devices over a real GPU.
#include <cstdio>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/device_factory.h"
#include "kernels/testing/device_conformance.h"

namespace lodestar {
namespace {

std::unique_ptr<Device> MakeCuda(DType compute) {
  auto device = MakeDevice({.kind = "cuda", .compute = compute}, /*why_not_cuda=*/nullptr);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return nullptr;
  }
  return *std::move(device);
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformanceTest,
                         testing::Values(DeviceCase{"Fp32", [] { return MakeCuda(DType::kF32); }},
                                         DeviceCase{"Bf16", [] { return MakeCuda(DType::kBf16); }}),
                         [](const testing::TestParamInfo<DeviceCase>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace lodestar
