// SPDX-License-Identifier: Apache-2.0

// Tests which operations the GPU benchmark runs, and that every timed run has the same inputs, at
// small shapes on the emulated card. Times mean nothing there.
#include "tests/bench/gpu/operation_bench.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "tests/bench/gpu/operation_timer.h"

namespace lodestar {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::unique_ptr<kernels::Device> Card(kernels::DType compute) {
  return cuda::MakeEmulatedDevice({.compute = compute}, {});
}

TEST(OperationTimerTest, EveryRunIsOnTheSameNumbers) {
  const auto card = Card(kernels::DType::kF32);
  void* const memory = *card->Allocate(8 * sizeof(float));
  const kernels::Buf x{memory, kernels::DType::kF32, 8};
  card->Fill(x, 4.0);
  std::vector<float> seen;
  const auto halve = [&] {
    float first = 0.0f;
    card->Copy(&first, x.data, sizeof(first), kernels::StreamKind::kCompute);
    ASSERT_TRUE(card->Synchronize(card->Record(kernels::StreamKind::kCompute)).ok());
    seen.push_back(first);
    card->Cast(x, x, 0.5, kernels::StreamKind::kCompute);
  };
  const auto seconds = OperationTimer(card.get(), /*repeats=*/5).Seconds({x}, halve);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GT(*seconds, 0.0);
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_THAT(seen, Each(4.0f));
  // The time must cover the two operations of halve(), a copy and a cast, but not the restoring of
  // the inputs.
  EXPECT_NEAR(*seconds, 2e-6, 1e-9);
  card->Release(memory);
}

TEST(OperationBenchTest, TimesEveryOperationOfAStep) {
  const OperationShapes small = SmallOperationShapes(/*batch=*/2);
  for (const kernels::DType compute : {kernels::DType::kF32, kernels::DType::kBf16}) {
    const auto card = Card(compute);
    const int64_t before = emulator::num_allocations();
    std::vector<std::string> names;
    double head_flops = 0.0;
    const auto status = BenchOperations(card.get(), small, /*repeats=*/2,
                                        {.ceilings =
                                             [](const Ceilings& ceilings) {
                                               EXPECT_GT(ceilings.bytes_per_second, 0.0);
                                               EXPECT_GT(ceilings.flops_per_second, 0.0);
                                             },
                                         .operation =
                                             [&](const TimedOperation& timed) {
                                               names.push_back(timed.name);
                                               EXPECT_GT(timed.seconds, 0.0) << timed.name;
                                               EXPECT_EQ(timed.flops > 0.0, timed.bytes == 0.0)
                                                   << timed.name;
                                               if (timed.name == "head forward")
                                                 head_flops = timed.flops;
                                             }});
    ASSERT_TRUE(status.ok()) << status;
    // The product includes the padded columns.
    EXPECT_EQ(head_flops, 2.0 * 2 * 16 * 16 * 48);
    EXPECT_THAT(
        names,
        ElementsAre("residual + norm forward", "norm backward", "attention forward",
                    "attention backward", "embedding forward", "embedding backward", "qkv forward",
                    "qkv backward", "projection forward", "projection backward", "fc+gelu forward",
                    "fc+gelu backward", "fc projection forward", "fc projection backward",
                    "fc projection's input and gelu backward", "head forward",
                    "softmax cross-entropy", "head backward", "AdamW, all parameters",
                    "encode in bf16", "residual of bf16", "encode in fp16", "residual of fp16",
                    "encode in int8", "residual of int8", "encode in int4", "residual of int4",
                    "copy to the host", "copy from the host"));
    // Only the device's own scratch memory may be left.
    EXPECT_LE(emulator::num_allocations() - before, 2);
  }
}

TEST(OperationBenchTest, TimesAttentionAlone) {
  const auto card = Card(kernels::DType::kBf16);
  std::vector<std::string> names;
  const auto status =
      BenchAttention(card.get(), {.batch = 2, .tokens = 16, .heads = 2, .head_width = 8},
                     /*repeats=*/2, ", pinned",
                     {.ceilings = [](const Ceilings&) { FAIL() << "no ceilings are measured"; },
                      .operation =
                          [&](const TimedOperation& timed) {
                            names.push_back(timed.name);
                            EXPECT_GT(timed.seconds, 0.0) << timed.name;
                          }});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(names, ElementsAre("attention forward, pinned", "attention backward, pinned"));
}

}  // namespace
}  // namespace lodestar
