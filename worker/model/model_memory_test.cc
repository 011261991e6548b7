// SPDX-License-Identifier: Apache-2.0

#include "worker/model/model_memory.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/device_memory.h"
#include "worker/model/testing/synthetic_training.h"

namespace lodestar::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

params::ModelSpec MiddlingGpt() {
  return {"middling",
          params::GptSpec{
              .num_layers = 12, .num_heads = 2, .width = 64, .context = 32, .vocabulary = 300}};
}

class ModelMemoryTest : public testing::Test {
 protected:
  int64_t BytesPerSample(Recompute recompute) {
    const ModelConfig config{.spec = MiddlingGpt(), .recompute = recompute};
    return EstimateModelMemory(config, device_.get())->bytes_per_sample;
  }

  const std::unique_ptr<kernels::Device> device_ =
      *factory::MakeDevice("cpu", /*threads=*/1, nullptr);
};

TEST_F(ModelMemoryTest, CountsParametersAndTheirGradients) {
  for (const params::ModelSpec& spec : SmallModelSpecs()) {
    const ModelMemory memory = *EstimateModelMemory({.spec = spec}, device_.get());
    const int64_t elements = params::BuildLayout(spec)->num_elements();
    EXPECT_GE(memory.parameter_bytes, 2 * 4 * elements);
    EXPECT_LE(memory.parameter_bytes, 2 * 4 * (elements + 128));
  }
}

// kUnit is the size of a [tokens, width] tensor in fp32: 32 tokens of width 64, or 8 KiB. Each of
// the 12 layers keeps 16 units per sample, and some statistics:
// - 8 units for sum, norm, qkv (3), attention, sum and norm;
// - 4 units for the input of the GELU, and 4 for its output.
TEST_F(ModelMemoryTest, RecomputingKeepsLess) {
  constexpr int64_t kUnit = 32 * 64 * 4;
  const int64_t none = BytesPerSample(Recompute::kNone);
  const int64_t gelu = BytesPerSample(Recompute::kGelu);
  const int64_t block = BytesPerSample(Recompute::kBlock);
  EXPECT_EQ(none - gelu, 11 * 4 * kUnit);
  EXPECT_GT(none, 12 * 16 * kUnit);
  EXPECT_LT(block, (12 + 16 + 20) * kUnit);
}

// Each of the 32 positions of a sample has a token and a target, of four bytes each.
TEST_F(ModelMemoryTest, SamplesOfAStepCountWhereTheyAreReadIntoTheDevicesMemory) {
  const ModelConfig config{.spec = MiddlingGpt(), .max_batch = 2};
  const ModelMemory memory = *EstimateModelMemory(config, device_.get());
  EXPECT_EQ(memory.batch_bytes_per_sample, 2 * 4 * 32);
  EXPECT_TRUE(CheckModelFits(memory, config, {}, device_.get()).ok());
  const auto whole = static_cast<int64_t>(device_->capabilities().memory_bytes);
  const OtherMemory step = {.device_bytes = whole, .batch_bytes = whole};
  EXPECT_THAT(std::string(CheckModelFits(memory, config, step, device_.get()).message()),
              AllOf(HasSubstr("samples of a step"), HasSubstr("--batch_size")));
  EXPECT_THAT(DescribeModelMemory(memory, config, step, device_.get()),
              AllOf(HasSubstr(", samples of a step "), Not(HasSubstr("local optimizer"))));
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
  // A card of 4000 bytes has a reserve of 200, and the model takes 1500 without samples: (4000 -
  // 200 - 1500) / 100 = 23.
  EXPECT_EQ(chosen(4000), 23);
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
  EXPECT_TRUE(CheckModelFits(memory, config, {}, device_.get()).ok());
  EXPECT_THAT(DescribeModelMemory(memory, config, {.pinned_bytes = 1}, device_.get()),
              AllOf(HasSubstr("the largest --max_micro_batch that fits is"),
                    Not(HasSubstr("pinned host memory"))));

  config.max_batch = all / memory.bytes_per_sample + 1;
  const absl::Status status = CheckModelFits(memory, config, {}, device_.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("middling"), HasSubstr("what fits: --max_micro_batch="),
                    HasSubstr("--recompute=gelu; "), HasSubstr("a machine with "),
                    HasSubstr(device_->capabilities().name), Not(HasSubstr("bf16"))));
  EXPECT_THAT(
      std::string(CheckModelFits(memory, config, {.device_bytes = all}, device_.get()).message()),
      HasSubstr("not even one"));
}

TEST_F(ModelMemoryTest, InMainMemoryTheProgramItselfCounts) {
  const ModelConfig config{.spec = MiddlingGpt(), .max_batch = 2};
  const ModelMemory memory = *EstimateModelMemory(config, device_.get());
  const auto all = static_cast<int64_t>(device_->capabilities().memory_bytes);
  const int64_t rest = all - memory.BytesFor(2) - kProgramBytes;
  EXPECT_EQ(CheckModelFits(memory, config, {.device_bytes = rest}, device_.get()).code(),
            absl::StatusCode::kOk);
  EXPECT_EQ(CheckModelFits(memory, config, {.device_bytes = rest + 1}, device_.get()).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(LargestMicroBatch(memory, rest, all, /*memory_is_host=*/true), 2);
  EXPECT_EQ(LargestMicroBatch(memory, rest + 1, all, /*memory_is_host=*/true), 1);
}

class CardMemoryTest : public testing::Test {
 protected:
  ~CardMemoryTest() override { emulator::Configure({}); }

  const ModelConfig config_{.spec = MiddlingGpt(), .max_batch = 2};
  const std::unique_ptr<kernels::Device> card_ =
      cuda::MakeEmulatedDevice({}, {.memory_bytes = 64 << 20});
};

TEST_F(CardMemoryTest, WhatOthersHaveOfACardIsNotThereForAModel) {
  const ModelMemory memory = *EstimateModelMemory(config_, card_.get());
  const int64_t wanted = memory.BytesFor(config_.max_batch);
  EXPECT_TRUE(CheckModelFits(memory, config_, {}, card_.get()).ok());
  const auto free_bytes = static_cast<int64_t>(card_->FreeMemoryBytes());
  const DeviceMemory others = *DeviceMemory::Allocate(card_.get(), free_bytes - wanted + 1);
  const absl::Status status = CheckModelFits(memory, config_, {}, card_.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("emulated card has 67.1 MB, "), HasSubstr(" of them free"),
                    HasSubstr("what fits: --max_micro_batch=1; ")));
  EXPECT_THAT(DescribeModelMemory(memory, config_, {}, card_.get()),
              HasSubstr("the largest --max_micro_batch that fits is 1"));
}

params::ModelSpec SevenBillion() {
  return {
      "gpt-7b",
      params::GptSpec{
          .num_layers = 32, .num_heads = 32, .width = 4096, .context = 2048, .vocabulary = 50304}};
}

constexpr int64_t kGigabyte = 1'000'000'000;

std::unique_ptr<kernels::Device> CardOf(int64_t gigabytes, kernels::DType compute) {
  return cuda::MakeEmulatedDevice({.compute = compute},
                                  {.memory_bytes = static_cast<size_t>(gigabytes * kGigabyte)});
}

class LargeModelMemoryTest : public testing::Test {
 protected:
  ~LargeModelMemoryTest() override { emulator::Configure({}); }
};

// A layer has 12 width^2 + 13 width parameters. The two tables and the last norm are added.
TEST_F(LargeModelMemoryTest, EachParameterTakesItsValueAndGradientAndWithBf16ItsNarrowValue) {
  const auto fp32 = CardOf(140, kernels::DType::kF32);
  const auto bf16 = CardOf(140, kernels::DType::kBf16);
  const struct {
    params::ModelSpec spec;
    int64_t parameters;
  } models[] = {{*params::ModelPreset("gpt2-1.5b"), 1'557'611'200},
                {SevenBillion(), 6'658'596'864}};
  for (const auto& [spec, parameters] : models) {
    ASSERT_EQ(params::BuildLayout(spec)->num_elements(), parameters);
    const ModelMemory wide = *EstimateModelMemory({.spec = spec}, fp32.get());
    const ModelMemory narrow = *EstimateModelMemory({.spec = spec}, bf16.get());
    // Maximum number of padding elements in each vector. See GptModel::PaddingElements().
    const int64_t padding = 256 * 4096;
    const auto expect_near = [&](int64_t bytes, int64_t bytes_each) {
      EXPECT_GE(bytes, bytes_each * parameters) << spec.name;
      EXPECT_LE(bytes, bytes_each * (parameters + padding)) << spec.name;
    };
    expect_near(wide.parameter_bytes, 8);
    expect_near(wide.gradient_bytes, 4);
    EXPECT_EQ(wide.narrow_bytes, 0);
    expect_near(narrow.parameter_bytes, 10);
    expect_near(narrow.gradient_bytes, 4);
    expect_near(narrow.narrow_bytes, 2);
  }
}

// Tests cards of many sizes. If a micro-batch is chosen for a card, allocating the model must
// succeed. If the model is refused, allocating it must fail.
TEST_F(LargeModelMemoryTest, WhatFitsIsAllocatedAndWhatIsRefusedIsNot) {
  int num_fitting = 0, num_refused = 0;
  for (const params::ModelSpec& spec : {*params::ModelPreset("gpt2-1.5b"), SevenBillion()}) {
    for (const kernels::DType compute : {kernels::DType::kF32, kernels::DType::kBf16}) {
      for (const int64_t gigabytes : {16, 24, 40, 80, 140}) {
        const auto card = CardOf(gigabytes, compute);
        for (const Recompute recompute : {Recompute::kNone, Recompute::kGelu, Recompute::kBlock}) {
          ModelConfig config{.spec = spec, .recompute = recompute};
          const ModelMemory memory = *EstimateModelMemory(config, card.get());
          const auto free_bytes = static_cast<int64_t>(card->FreeMemoryBytes());
          const int64_t largest = memory.LargestBatch(free_bytes);
          SCOPED_TRACE(absl::StrCat(spec.name, " on ", gigabytes, " GB, ",
                                    compute == kernels::DType::kF32 ? "fp32" : "bf16",
                                    ", recompute ", static_cast<int>(recompute), ": ", largest));
          config.max_batch = largest + 1;
          EXPECT_FALSE(CheckModelFits(memory, config, {}, card.get()).ok());
          EXPECT_FALSE(MakeModel(config, card.get()).ok());
          ++num_refused;
          if (largest == 0) continue;
          ++num_fitting;
          config.max_batch = largest;
          EXPECT_TRUE(CheckModelFits(memory, config, {}, card.get()).ok());
          const auto model = MakeModel(config, card.get());
          ASSERT_TRUE(model.ok()) << model.status();
          const int64_t taken = free_bytes - static_cast<int64_t>(card->FreeMemoryBytes());
          EXPECT_LE(taken, memory.BytesFor(largest));
          EXPECT_GE(taken, memory.BytesFor(largest) - free_bytes / 500) << "within 0.2 %";
        }
      }
    }
  }
  EXPECT_EQ(num_refused, 60);
  EXPECT_GT(num_fitting, 20);
}

// Tests the smallest card for each model and way to train, with one sample at a time and the
// reserve. docs/howto/planning.md names some of them.
TEST_F(LargeModelMemoryTest, TheSmallestCardOfEachWay) {
  const auto smallest = [](const params::ModelSpec& spec, kernels::DType compute,
                           Recompute recompute) -> int64_t {
    for (const int64_t gigabytes : {16, 24, 40, 80, 140}) {
      const auto card = CardOf(gigabytes, compute);
      const ModelMemory memory =
          *EstimateModelMemory({.spec = spec, .recompute = recompute}, card.get());
      const auto free_bytes = static_cast<int64_t>(card->FreeMemoryBytes());
      if (LargestMicroBatch(memory, 0, free_bytes, /*memory_is_host=*/false) > 0) return gigabytes;
    }
    return 0;
  };
  const params::ModelSpec xl = *params::ModelPreset("gpt2-1.5b");
  EXPECT_EQ(smallest(xl, kernels::DType::kF32, Recompute::kNone), 24);
  EXPECT_EQ(smallest(xl, kernels::DType::kF32, Recompute::kBlock), 16);
  EXPECT_EQ(smallest(xl, kernels::DType::kBf16, Recompute::kNone), 24);
  EXPECT_EQ(smallest(xl, kernels::DType::kBf16, Recompute::kBlock), 24);
  const params::ModelSpec large = SevenBillion();
  EXPECT_EQ(smallest(large, kernels::DType::kF32, Recompute::kNone), 80);
  EXPECT_EQ(smallest(large, kernels::DType::kF32, Recompute::kBlock), 80);
  EXPECT_EQ(smallest(large, kernels::DType::kBf16, Recompute::kNone), 140);
  EXPECT_EQ(smallest(large, kernels::DType::kBf16, Recompute::kBlock), 80);
}

TEST_F(LargeModelMemoryTest, ARefusalNamesEachPartAndWhatWouldFitInOrder) {
  const auto card = CardOf(24, kernels::DType::kF32);
  const ModelConfig config{.spec = *params::ModelPreset("gpt2-1.5b"), .max_batch = 8};
  const ModelMemory memory = *EstimateModelMemory(config, card.get());
  const absl::Status status = CheckModelFits(memory, config, {}, card.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      testing::ContainsRegex(
          "model gpt2-1.5b with micro-batches of 8 samples needs .*GB \\(parameters 6.2. GB, "
          "gradients 6.2. GB, activations of 8 samples .* GB \\(.* GB each\\), scratch .*\\), "
          "emulated card has 24.00 GB, .* GB of them free; what fits: --max_micro_batch=.; "
          "--max_micro_batch=. --recompute=gelu; "
          ".*--recompute=block; .*--dtype=bf16; .*--dtype=bf16 --recompute=gelu; "
          ".*--dtype=bf16 --recompute=block; a card with .* GB free; more servers do not "
          "help"));
}

TEST_F(LargeModelMemoryTest, ALocalOptimizerIsNamedAndAModeWithoutItOffered) {
  const auto card = CardOf(24, kernels::DType::kF32);
  const params::ModelSpec spec = *params::ModelPreset("gpt2-1.5b");
  const ModelConfig config{.spec = spec, .recompute = Recompute::kBlock};
  const ModelMemory memory = *EstimateModelMemory(config, card.get());
  // The local state is AdamW's two vectors and the weights at the start of the round.
  const int64_t local_steps = 3 * 4 * params::BuildLayout(spec)->num_elements();
  const OtherMemory other = {.device_bytes = local_steps + 1000, .local_step_bytes = local_steps};
  EXPECT_THAT(std::string(CheckModelFits(memory, config, other, card.get()).message()),
              AllOf(HasSubstr("local optimizer and weights of the round 18.69 GB"),
                    HasSubstr("encodings and error feedback 1.0 kB"),
                    HasSubstr("what fits: --mode=sync of the servers")));
}

TEST_F(LargeModelMemoryTest, WhereNothingFitsTheLeastIsSaid) {
  const auto card = CardOf(24, kernels::DType::kF32);
  const ModelConfig config{.spec = SevenBillion()};
  const ModelMemory memory = *EstimateModelMemory(config, card.get());
  EXPECT_THAT(std::string(CheckModelFits(memory, config, {}, card.get()).message()),
              AllOf(HasSubstr("not even one sample fits: this model needs at least 5"),
                    HasSubstr("GB, with --max_micro_batch=1 --recompute=block; use a card with")));
}

// Every architecture must take as much pinned memory as EstimateModelMemory() says.
TEST_F(CardMemoryTest, PinnedHostMemoryIsReported) {
  for (const params::ModelSpec& spec : SmallModelSpecs()) {
    const ModelConfig config{.spec = spec, .max_batch = 3};
    const ModelMemory memory = *EstimateModelMemory(config, card_.get());
    const int64_t before = emulator::pinned_bytes();
    const auto model = *MakeModel(config, card_.get());
    EXPECT_EQ(emulator::pinned_bytes() - before, 3 * memory.pinned_bytes_per_sample) << spec.name;
  }
  const ModelMemory memory = {.bytes_per_sample = 1, .pinned_bytes_per_sample = 1'000'000};
  EXPECT_THAT(DescribeModelMemory(memory, config_, {.pinned_bytes = 5'000'000}, card_.get()),
              HasSubstr(", pinned host memory 7.0 MB; "));
  EXPECT_THAT(DescribeModelMemory(memory, config_,
                                  {.pinned_bytes = 5'000'000, .most_shared_bytes = 25'000'000},
                                  card_.get()),
              HasSubstr(", pinned host memory 7.0 MB and up to 25.0 MB shared with servers of this "
                        "machine; "));
}

// On a card, a copy from memory that is not pinned would wait for all queued work.
TEST_F(CardMemoryTest, BatchesAreCopiedFromPinnedMemory) {
  for (const kernels::DType compute : {kernels::DType::kF32, kernels::DType::kBf16}) {
    const auto card = cuda::MakeEmulatedDevice({.compute = compute}, {});
    for (const params::ModelSpec& spec : SmallModelSpecs()) {
      const auto model = *MakeModel({.spec = spec, .max_batch = 2}, card.get());
      card->Fill(model->parameters(), 0.01);
      model->RefreshNarrowParameters();
      const data::HostBatch batch = RandomBatch(spec, /*num_samples=*/5, /*seed=*/1);
      const int64_t before = emulator::num_pageable_copies();
      EXPECT_TRUE(model->TrainStep(batch, nullptr, nullptr).ok());
      EXPECT_TRUE(model->Evaluate(batch, nullptr).ok());
      EXPECT_EQ(emulator::num_pageable_copies(), before) << spec.name;
    }
  }
}

}  // namespace
}  // namespace lodestar::model
