// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/conv.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_test_rig.h"

namespace lodestar::cuda {
namespace {

TEST(ConvTest, PassesAreBoundedAndNeverEmpty) {
  // If all samples were processed in one pass, this batch would need 925 MB.
  const kernels::ConvShape large{
      .samples = 1024, .in_channels = 32, .height = 28, .width = 28, .out_channels = 64};
  const int64_t samples = ConvSamplesPerPass(large);
  EXPECT_GT(samples, 1);
  EXPECT_LT(samples, large.samples);
  EXPECT_EQ(ConvPatchElements(large), samples * large.workspace_elements());
  EXPECT_EQ(ConvProductElements(large), samples * 64 * 28 * 28);
  EXPECT_LE(ConvPatchElements(large) * 4, int64_t{32} << 20);

  kernels::ConvShape one = large;
  one.height = one.width = 2000;
  EXPECT_EQ(ConvSamplesPerPass(one), 1);
  kernels::ConvShape few = large;
  few.samples = 3;
  EXPECT_EQ(ConvSamplesPerPass(few), 3);
}

// Tests that <Unfold(x), p> = <x, Fold(p)>. Values are small integers, so that all sums are exact.
TEST(ConvTest, FoldIsTheAdjointOfUnfold) {
  for (const kernels::ConvShape& s :
       {kernels::ConvShape{1, 1, 1, 1, 1}, kernels::ConvShape{3, 2, 5, 7, 1},
        kernels::ConvShape{2, 3, 1, 9, 1}, kernels::ConvShape{2, 1, 31, 1, 1},
        kernels::ConvShape{1, 2, 20, 20, 1}}) {
    const int64_t inputs = s.samples * s.in_channels * s.height * s.width;
    std::vector<float> x(inputs);
    std::vector<float> p(9 * inputs);
    for (int64_t i = 0; i < inputs; ++i) x[i] = static_cast<float>(i * 7 % 5 - 2);
    for (int64_t i = 0; i < 9 * inputs; ++i) p[i] = static_cast<float>(i * 11 % 7 - 3);
    // The result has Unfold(x), then Fold(p).
    const std::vector<float> got = InBothOrders([&](KernelTestRig& rig) {
      float* patches = rig.Allocate<float>(9 * inputs);
      float* dx = rig.Allocate<float>(inputs);
      EXPECT_EQ(Unfold(patches, rig.Upload(x), s, rig.stream()), cudaSuccess);
      EXPECT_EQ(Fold(dx, rig.Upload(p), s, rig.stream()), cudaSuccess);
      std::vector<float> result = rig.Download(patches, 9 * inputs);
      const std::vector<float> folded = rig.Download(dx, inputs);
      result.insert(result.end(), folded.begin(), folded.end());
      return result;
    });
    double of_patches = 0.0;
    double of_images = 0.0;
    for (int64_t i = 0; i < 9 * inputs; ++i) of_patches += double{got[i]} * p[i];
    for (int64_t i = 0; i < inputs; ++i) of_images += double{got[9 * inputs + i]} * x[i];
    EXPECT_EQ(of_patches, of_images) << s.height << " x " << s.width;
    // Tap 4 reads the pixel itself. So row 4 of each channel of the patches is the channel's image
    // of each sample, one sample after the other.
    const int64_t plane = s.height * s.width;
    for (int64_t i = 0; i < inputs; ++i) {
      const int64_t sample = i / (s.in_channels * plane);
      const int64_t channel = i / plane % s.in_channels;
      EXPECT_EQ(got[(channel * 9 + 4) * s.samples * plane + sample * plane + i % plane], x[i]);
    }
  }
}

}  // namespace
}  // namespace lodestar::cuda
