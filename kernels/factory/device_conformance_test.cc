// SPDX-License-Identifier: Apache-2.0

#include "kernels/testing/device_conformance.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/oracle/oracle_device.h"
#include "kernels/simd/loops.h"
#include "kernels/testing/device_test_rig.h"

namespace lodestar::factory {
namespace {

using kernels::DeviceConformanceTest;

// Returns the CPU device with each instruction set that this machine supports, with one, two and
// three threads.
std::vector<kernels::DeviceCase> CpuCases() {
  std::vector<kernels::DeviceCase> cases;
  for (int threads : {1, 2, 3}) {
    cases.push_back(
        {absl::StrCat("Cpu", threads), [threads] { return cpu::MakeCpuDevice(threads); }});
  }
  for (int i = 1; simd::SupportedLoops(i) != nullptr; ++i) {
    const simd::Loops& loops = *simd::SupportedLoops(i);
    cases.push_back(
        {absl::StrCat("Cpu", loops.name), [&loops]() -> std::unique_ptr<kernels::Device> {
           return std::make_unique<cpu::CpuDevice>(2, loops);
         }});
  }
  return cases;
}

std::string CaseName(const testing::TestParamInfo<kernels::DeviceCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformanceTest, testing::ValuesIn(CpuCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Oracle, DeviceConformanceTest,
                         testing::Values(kernels::DeviceCase{"Oracle", oracle::MakeOracleDevice}),
                         CaseName);

struct LayerSize {
  int64_t rows, in, out;
};

std::vector<double> Transposed(const std::vector<double>& values, int64_t rows, int64_t columns) {
  std::vector<double> transposed(values.size());
  for (int64_t i = 0; i < rows * columns; ++i) {
    transposed[i % columns * rows + i / columns] = values[i];
  }
  return transposed;
}

// Runs a layer whose weight is in the order `order`, and returns its outputs. The gradient of the
// weight is always returned as [out, in].
kernels::Outputs RunLayer(kernels::Device* device, const LayerSize& s, kernels::WeightOrder order) {
  kernels::DeviceTestRig rig(device, kernels::DType::kF32);
  const kernels::Buf x = rig.Random(s.rows * s.in);
  const kernels::Buf bias = rig.Random(s.out);
  const kernels::Buf dy = rig.InOut("dy", s.rows * s.out);
  std::vector<double> weights(s.in * s.out);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = std::sin(0.7 * static_cast<double>(i));
  const bool is_turned = order == kernels::WeightOrder::kInOut;
  const kernels::Buf w = rig.Values(is_turned ? Transposed(weights, s.out, s.in) : weights);
  const kernels::Buf pre = rig.Output("pre", s.rows * s.out);
  device->LinearForward(rig.Output("y", s.rows * s.out), pre, x, w, bias, s.rows, s.in, s.out,
                        kernels::Activation::kGeluTanh, order);
  device->LinearBackward(rig.Output("dx", s.rows * s.in), rig.Output("dw", s.in * s.out),
                         rig.Output("db", s.out), dy, pre, x, w, s.rows, s.in, s.out,
                         kernels::Activation::kGeluTanh, order, kernels::Accumulate::kSet);
  kernels::Outputs outputs = rig.Collect();
  if (is_turned) outputs["dw"] = Transposed(outputs["dw"], s.in, s.out);
  return outputs;
}

// A job may have begun with a release that used the other order of weights. It must continue with
// the same bits.
TEST(CpuDeviceTest, BothOrdersOfWeightsGiveTheSameBits) {
  for (const kernels::DeviceCase& device_case : CpuCases()) {
    const std::unique_ptr<kernels::Device> device = device_case.make();
    for (const LayerSize& s :
         {LayerSize{1, 1, 1}, LayerSize{31, 33, 1}, LayerSize{1, 31, 33}, LayerSize{257, 65, 130},
          LayerSize{512, 128, 384}, LayerSize{64, 1536, 384}}) {
      EXPECT_EQ(RunLayer(device.get(), s, kernels::WeightOrder::kInOut),
                RunLayer(device.get(), s, kernels::WeightOrder::kOutIn))
          << device_case.name << " " << s.rows << " " << s.in << " " << s.out;
    }
  }
}

}  // namespace
}  // namespace lodestar::factory
