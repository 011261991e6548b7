// SPDX-License-Identifier: Apache-2.0

// Tests convolutions whose patches need several passes. The conformance suite does not have these.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/conv.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/oracle/oracle_device.h"
#include "kernels/testing/device_test_rig.h"

namespace lodestar::cuda {
namespace {

kernels::Outputs Convolve(kernels::Device* device, const kernels::ConvShape& s) {
  kernels::DeviceTestRig rig(device, kernels::DType::kF32);
  const int64_t pixels = s.samples * s.height * s.width;
  const int64_t taps = s.out_channels * s.in_channels * 9;
  const kernels::Buf x = rig.Random(s.in_channels * pixels);
  const kernels::Buf w = rig.Random(taps);
  const kernels::Buf y = rig.Output("y", s.out_channels * pixels);
  const kernels::Buf workspace = rig.Workspace(device->ConvWorkspaceElements(s));
  device->ConvReluForward(y, x, w, rig.Random(s.out_channels), workspace, s);
  // The first pass sets dw and db. All other passes add to them.
  const kernels::Buf dw = rig.Output("dw", taps, rig.statistics_dtype());
  const kernels::Buf db = rig.Output("db", s.out_channels, rig.statistics_dtype());
  device->ConvReluBackward(rig.Output("dx", s.in_channels * pixels), dw, db,
                           rig.InOut("dy", s.out_channels * pixels), y, x, w, workspace, s,
                           kernels::Accumulate::kSet);
  return rig.Collect();
}

TEST(DeviceImageTest, ConvolvesInSeveralPasses) {
  const kernels::ConvShape shape{
      .samples = 2, .in_channels = 1, .height = 100, .width = 9400, .out_channels = 1};
  ASSERT_EQ(ConvSamplesPerPass(shape), 1);
  const auto device = MakeEmulatedDevice({.fusion = factory::FusionPolicy::kNever}, {});
  const kernels::Outputs got = Convolve(device.get(), shape);
  const kernels::Outputs want = Convolve(oracle::MakeOracleDevice().get(), shape);
  for (const auto& [name, values] : want) {
    double largest = 1.0;
    for (double value : values) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < values.size(); ++i) {
      // The tolerance is for sums of up to a million terms in fp32.
      ASSERT_NEAR(got.at(name)[i], values[i], 1e-4 * largest) << name << "[" << i << "]";
    }
  }
}

}  // namespace
}  // namespace lodestar::cuda
