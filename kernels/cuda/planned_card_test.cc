// SPDX-License-Identifier: Apache-2.0

#include "kernels/planned_card.h"

#include <memory>

#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"

namespace lodestar::cuda {
namespace {

TEST(PlannedCardTest, TellsWhatACardTells) {
  for (const kernels::DType compute : {kernels::DType::kF32, kernels::DType::kBf16}) {
    const auto card = cuda::MakeEmulatedDevice({.compute = compute}, {.memory_bytes = 128 << 20});
    kernels::PlannedCard planned(compute, 128 << 20);
    EXPECT_EQ(planned.capabilities().compute, card->capabilities().compute);
    EXPECT_EQ(planned.capabilities().memory_is_host, card->capabilities().memory_is_host);
    EXPECT_EQ(planned.capabilities().memory_bytes, card->capabilities().memory_bytes);
    EXPECT_EQ(planned.FreeMemoryBytes(), 128 << 20);
    for (const int64_t samples : {1, 3, 256}) {
      for (const int64_t width : {1, 64}) {
        const kernels::AttentionShape attention = {
            .batch = samples, .tokens = 33, .heads = 5, .head_width = width};
        EXPECT_EQ(planned.AttentionWorkspaceElements(attention),
                  card->AttentionWorkspaceElements(attention));
        const kernels::ConvShape conv = {.samples = samples,
                                         .in_channels = width,
                                         .height = 32,
                                         .width = 32,
                                         .out_channels = 2 * width};
        EXPECT_EQ(planned.ConvWorkspaceElements(conv), card->ConvWorkspaceElements(conv));
      }
    }
  }
}

TEST(PlannedCardTest, HasNoMemoryToGive) {
  kernels::PlannedCard planned(kernels::DType::kF32);
  EXPECT_FALSE(planned.Allocate(1).ok());
  EXPECT_FALSE(planned.AllocateHost(1).ok());
  EXPECT_EQ(planned.FreeMemoryBytes(), 0) << "unknown";
}

}  // namespace
}  // namespace lodestar::cuda
