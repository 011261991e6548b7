// SPDX-License-Identifier: Apache-2.0

// Tests of dropout and recomputation in the GPT.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/gpt_model.h"
#include "worker/model/model_allocation.h"
#include "worker/model/testing/synthetic_training.h"

namespace lodestar::model {
namespace {

class GptTrainingTest : public testing::Test {
 protected:
  struct Step {
    double loss_sum = 0.0;
    std::vector<double> gradient;
  };

  std::unique_ptr<GptModel> MakeReadyModel(const ModelConfig& config) {
    auto model = *AllocateModel<GptModel>(config, device_.get());
    WriteBuf(device_.get(), model->parameters(),
             RandomParameters(model->layout(), /*noise=*/0.1, /*seed=*/3));
    return model;
  }

  Step TrainStep(const ModelConfig& config, const data::HostBatch& batch) {
    auto model = MakeReadyModel(config);
    const BatchResult result = *model->TrainStep(batch, nullptr, nullptr);
    return {result.loss_sum, ReadBuf(device_.get(), model->gradients())};
  }

  static data::HostBatch BatchAt(int64_t first_position, int64_t num_samples) {
    data::HostBatch batch = RandomBatch(SmallGptSpec(), num_samples, /*seed=*/9);
    batch.first_position = first_position;
    return batch;
  }

  const std::unique_ptr<kernels::Device> device_ =
      *factory::MakeDevice("cpu", /*threads=*/2, nullptr);
};

TEST_F(GptTrainingTest, RecomputingGivesTheSameBits) {
  for (const params::ModelSpec& spec : {SmallGptSpec(), SmallDroppingGptSpec()}) {
    // With max_batch = 3, seven samples make micro-batches of 3, 3 and 1.
    const data::HostBatch batch = BatchAt(100, 7);
    const Step kept = TrainStep({.spec = spec, .max_batch = 3}, batch);
    for (const Recompute recompute : {Recompute::kGelu, Recompute::kBlock}) {
      const Step recomputed =
          TrainStep({.spec = spec, .max_batch = 3, .recompute = recompute}, batch);
      EXPECT_EQ(recomputed.loss_sum, kept.loss_sum);
      EXPECT_EQ(recomputed.gradient, kept.gradient) << spec.name;
    }
  }
}

TEST_F(GptTrainingTest, DropoutFollowsThePlaceOfASample) {
  const ModelConfig config{.spec = SmallDroppingGptSpec(), .max_batch = 4};
  const data::HostBatch batch = BatchAt(50, 4);
  const Step whole = TrainStep(config, batch);
  const Step first = TrainStep(config, SliceBatch(batch, 0, 1));
  const Step rest = TrainStep(config, SliceBatch(batch, 1, 3));
  // The losses are around 4 nats and are summed in fp32.
  EXPECT_NEAR(first.loss_sum + rest.loss_sum, whole.loss_sum, 1e-4);
  for (size_t i = 0; i < whole.gradient.size(); ++i) {
    ASSERT_NEAR(0.25 * first.gradient[i] + 0.75 * rest.gradient[i], whole.gradient[i], 1e-5);
  }
  EXPECT_GT(std::abs(TrainStep(config, BatchAt(54, 4)).loss_sum - whole.loss_sum), 1e-2);
}

TEST_F(GptTrainingTest, DropoutFollowsTheSeed) {
  ModelConfig config{.spec = SmallDroppingGptSpec(), .max_batch = 4};
  const Step one = TrainStep(config, BatchAt(0, 4));
  EXPECT_EQ(TrainStep(config, BatchAt(0, 4)).gradient, one.gradient);
  config.seed = 2;
  EXPECT_GT(std::abs(TrainStep(config, BatchAt(0, 4)).loss_sum - one.loss_sum), 1e-2);
}

TEST_F(GptTrainingTest, EvaluationDropsNothing) {
  auto dropping = MakeReadyModel({.spec = SmallDroppingGptSpec(), .max_batch = 4});
  auto plain = MakeReadyModel({.spec = SmallGptSpec(), .max_batch = 4});
  const data::HostBatch batch = BatchAt(0, 4);
  const double loss = plain->Evaluate(batch, nullptr)->loss_sum;
  EXPECT_EQ(dropping->Evaluate(batch, nullptr)->loss_sum, loss);
  EXPECT_GT(std::abs(dropping->TrainStep(batch, nullptr, nullptr)->loss_sum - loss), 1e-2);
}

}  // namespace
}  // namespace lodestar::model
