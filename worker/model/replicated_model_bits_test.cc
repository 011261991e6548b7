// SPDX-License-Identifier: Apache-2.0

// Compares the bits of a model on several emulated cards with those on one card, and tests a card
// that fails.

#include <memory>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/cuda/testing/emulated_device.h"
#include "worker/model/model.h"
#include "worker/model/testing/synthetic_training.h"
#include "worker/model/testing/test_devices.h"

namespace lodestar::model {
namespace {

TEST(ReplicatedModelBitsTest, GradientsAreThoseOfOneCardThatAccumulatesAsManyMicroBatches) {
  constexpr int64_t kSamples = 6;
  for (const params::ModelSpec& spec : SmallModelSpecs()) {
    const data::HostBatch batch = RandomBatch(spec, kSamples, 3);
    const kernels::DeviceSet one = MakeTestCards(1);
    for (const int count : {2, 3, 6}) {
      const kernels::DeviceSet cards = MakeTestCards(count);
      const ModelConfig config = {.spec = spec, .max_batch = kSamples / count};
      const std::unique_ptr<Model> single = *MakeModel(config, one);
      const std::unique_ptr<Model> model = *MakeModel(config, cards);
      const std::vector<double> weights = RandomParameters(model->layout(), 0.05, 1);
      WriteBuf(&one.first(), single->parameters(), weights);
      WriteBuf(&cards.first(), model->parameters(), weights);
      const auto expected = single->TrainStep(batch, nullptr, nullptr);
      const auto result = model->TrainStep(batch, nullptr, nullptr);
      ASSERT_OK(expected);
      ASSERT_OK(result);
      EXPECT_EQ(result->loss_sum, expected->loss_sum);
      const std::vector<double> gradient = ReadBuf(&one.first(), single->gradients());
      const std::vector<double> summed = ReadBuf(&cards.first(), model->gradients());
      for (const params::TensorSpec& tensor : model->layout().tensors()) {
        for (int64_t i = tensor.offset; i < tensor.offset + tensor.num_elements(); ++i) {
          ASSERT_EQ(summed[i], gradient[i])
              << spec.name << ", " << count << " cards, " << tensor.name << " " << i;
        }
      }
    }
  }
}

// If a kernel fails on one card, the steps of all cards end with the error of that kernel.
TEST(ReplicatedModelFailureTest, FailingCardEndsTheStepOfAll) {
  const params::ModelSpec spec = SmallGptSpec();
  const data::HostBatch batch = RandomBatch(spec, 5, 3);
  const kernels::DeviceSet cards = MakeTestCards(3);
  const std::unique_ptr<Model> model = *MakeModel({.spec = spec, .max_batch = 8}, cards);
  WriteBuf(&cards.first(), model->parameters(), RandomParameters(model->layout(), 0.05, 1));
  ASSERT_OK(model->TrainStep(batch, nullptr, nullptr));
  emulator::FailLaunchAfter(20);
  EXPECT_EQ(model->TrainStep(batch, nullptr, nullptr).status().code(), absl::StatusCode::kInternal);
  emulator::ClearStickyError();
}

}  // namespace
}  // namespace lodestar::model
