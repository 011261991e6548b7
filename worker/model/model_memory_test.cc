#include "worker/model/model_memory.h"

#include <limits>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_factory.h"
#include "worker/model/testing/synthetic_training.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelSpec MiddlingGpt() {
  return {"middling",
          GptSpec{.num_layers = 12, .num_heads = 2, .width = 64, .context = 32, .vocabulary = 300}};
}

class ModelMemoryTest : public testing::Test {
 protected:
  int64_t BytesPerSample(Recompute recompute) {
    const ModelConfig config{.spec = MiddlingGpt(), .recompute = recompute};
    return EstimateModelMemory(config, device_.get())->bytes_per_sample;
  }

  const std::unique_ptr<Device> device_ = *MakeDevice("cpu", /*threads=*/1, nullptr);
};

TEST_F(ModelMemoryTest, CountsParametersAndTheirGradients) {
  for (const ModelSpec& spec : SmallModelSpecs()) {
    const ModelMemory memory = *EstimateModelMemory({.spec = spec}, device_.get());
    const int64_t elements = BuildLayout(spec)->num_elements();
    EXPECT_GE(memory.parameter_bytes, 2 * 4 * elements);
    EXPECT_LE(memory.parameter_bytes, 2 * 4 * (elements + 128));
  }
}

// width 64, 32 tokens: a [tokens, width] of fp32 is 8 KiB; 12 layers of sum, norm, qkv (3),
// attention, sum, norm, values before and after the GELU (8) and some statistics.
TEST_F(ModelMemoryTest, RecomputingKeepsLess) {
  constexpr int64_t kUnit = 32 * 64 * 4;
  const int64_t none = BytesPerSample(Recompute::kNone);
  const int64_t gelu = BytesPerSample(Recompute::kGelu);
  const int64_t block = BytesPerSample(Recompute::kBlock);
  EXPECT_EQ(none - gelu, 11 * 4 * kUnit);
  EXPECT_GT(none, 12 * 16 * kUnit);
  EXPECT_LT(block, (12 + 16 + 20) * kUnit);
}

TEST_F(ModelMemoryTest, LargestBatchIsTheLastThatFits) {
  const ModelConfig config{.spec = MiddlingGpt()};
  const ModelMemory memory = *EstimateModelMemory(config, device_.get());
  const int64_t available = memory.BytesFor(10) + memory.bytes_per_sample / 2;
  EXPECT_EQ(memory.LargestBatch(available), 10);
  EXPECT_EQ(memory.LargestBatch(memory.parameter_bytes), 0);
}

constexpr ModelMemory kHundredPerSample = {
    .parameter_bytes = 1000, .fixed_bytes = 500, .bytes_per_sample = 100};

TEST(ModelMemorySizeTest, WhatNoNumberHoldsIsTooMuchAndNotLittle) {
  const ModelMemory memory = {.parameter_bytes = 1, .bytes_per_sample = int64_t{1} << 50};
  EXPECT_EQ(memory.BytesFor(1 << 20), std::numeric_limits<int64_t>::max() / 2);
}

TEST(ChooseMicroBatchTest, ACardIsFilledButForAReserve) {
  const auto chosen = [](int64_t free_bytes, int64_t other_bytes = 0) {
    return ChooseMicroBatch(kHundredPerSample, {.largest_share = 1000,
                                                .free_bytes = free_bytes,
                                                .other_bytes = other_bytes,
                                                .memory_is_host = false});
  };
  EXPECT_EQ(chosen(4000), 23);  // 4000 - 200 - 1500
  EXPECT_EQ(chosen(4000, 1000), 13);
  EXPECT_EQ(chosen(1'000'000), kMostChosenSamples);
  EXPECT_EQ(chosen(700), 1) << "CheckModelFits() says what is missing";
}

TEST(ChooseMicroBatchTest, MainMemoryIsLeftToOthers) {
  const auto chosen = [](int64_t free_bytes) {
    return ChooseMicroBatch(kHundredPerSample, {.largest_share = 1000, .free_bytes = free_bytes});
  };
  EXPECT_EQ(chosen(16 * 100 * 5), 5);
  EXPECT_EQ(chosen(16 * 100 * 1000), kMostChosenSamples);
  EXPECT_EQ(chosen(16), 1);
}

TEST(ChooseMicroBatchTest, IsNeverMoreThanAStepHas) {
  for (const int64_t free_bytes : {0, 1 << 30}) {
    EXPECT_EQ(ChooseMicroBatch(kHundredPerSample, {.largest_share = 3, .free_bytes = free_bytes}),
              3);
  }
  EXPECT_EQ(ChooseMicroBatch(kHundredPerSample, {.largest_share = 1000}), kMostChosenSamples);
}

TEST_F(ModelMemoryTest, RefusesWhatCannotFitAndSaysWhatToChange) {
  ModelConfig config{.spec = MiddlingGpt()};
  const ModelMemory memory = *EstimateModelMemory(config, device_.get());
  const auto all = static_cast<int64_t>(device_->capabilities().memory_bytes);
  ASSERT_GT(all, 0);
  EXPECT_GT(device_->FreeMemoryBytes(), 0);
  EXPECT_LE(device_->FreeMemoryBytes(), all);
  EXPECT_TRUE(CheckModelFits(memory, config, /*other_bytes=*/0, *device_).ok());
  EXPECT_THAT(DescribeModelMemory(memory, config, 0, *device_),
              HasSubstr("for --max_micro_batch of up to"));

  config.max_batch = all / memory.bytes_per_sample + 1;
  const absl::Status status = CheckModelFits(memory, config, 0, *device_);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("middling"), HasSubstr("--max_micro_batch"), HasSubstr("--recompute"),
                    HasSubstr(device_->capabilities().name)));
  EXPECT_THAT(std::string(CheckModelFits(memory, config, all, *device_).message()),
              HasSubstr("not even one"));
}

}  // namespace
}  // namespace lodestar
