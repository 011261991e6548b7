// SPDX-License-Identifier: Apache-2.0

// Compares a model on several cards with the same model on one. For emulated cards, bits are
// compared in replicated_model_bits_test.cc, and whole rounds in
// worker/trainer/cuda_rounds_test.cc.
#include "worker/model/replicated_model.h"

#include <memory>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/model/testing/synthetic_training.h"
#include "worker/model/testing/test_devices.h"

namespace lodestar::model {
namespace {

using ::testing::HasSubstr;

class ReplicatedModelTest : public ::testing::Test {
 protected:
  ReplicatedModelTest() : spec_(SmallGptSpec()), batch_(RandomBatch(spec_, 5, 3)) {}

  // Makes a model whose weights are set on the first card only. The other cards have arbitrary
  // values.
  std::unique_ptr<Model> ModelOn(const kernels::DeviceSet& cards) {
    auto model = MakeModel({.spec = spec_, .max_batch = 8}, cards);
    EXPECT_OK(model);
    WriteBuf(&cards.first(), (*model)->parameters(),
             RandomParameters((*model)->layout(), /*noise=*/0.05, /*seed=*/1));
    return *std::move(model);
  }
  static std::vector<double> GradientOf(const kernels::DeviceSet& cards, Model& model) {
    return ReadBuf(&cards.first(), model.gradients());
  }

  const params::ModelSpec spec_;
  const data::HostBatch batch_;
};

// Five samples run on 2 cards, on 4 cards, and on 7 cards, of which two get no sample.
TEST_F(ReplicatedModelTest, UnevenPartsGiveLossAndGradientOfOneCard) {
  const kernels::DeviceSet one = MakeTestCards(1);
  const std::unique_ptr<Model> single = ModelOn(one);
  const auto expected = single->TrainStep(batch_, nullptr, nullptr);
  ASSERT_OK(expected);
  const std::vector<double> gradient = GradientOf(one, *single);
  const auto expected_evaluation = single->Evaluate(batch_, nullptr);
  ASSERT_OK(expected_evaluation);
  for (const int count : {2, 4, 7}) {
    const kernels::DeviceSet cards = MakeTestCards(count);
    const std::unique_ptr<Model> model = ModelOn(cards);
    const auto result = model->TrainStep(batch_, nullptr, nullptr);
    ASSERT_OK(result);
    EXPECT_NEAR(result->loss_sum, expected->loss_sum, 1e-5 * expected->loss_sum);
    EXPECT_EQ(result->num_predictions, expected->num_predictions);
    const std::vector<double> summed = GradientOf(cards, *model);
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      difference += (summed[i] - gradient[i]) * (summed[i] - gradient[i]);
      norm += gradient[i] * gradient[i];
    }
    // Matrix products with another number of rows may be summed in another order.
    EXPECT_LT(difference, 1e-10 * norm) << count << " cards";
    EXPECT_GT(norm, 0.0);
    const auto evaluation = model->Evaluate(batch_, nullptr);
    ASSERT_OK(evaluation);
    EXPECT_NEAR(evaluation->loss_sum, expected_evaluation->loss_sum, 1e-5 * expected->loss_sum);
    EXPECT_EQ(evaluation->num_correct, expected_evaluation->num_correct);
  }
}

class RecordingSink final : public GradientSink {
 public:
  void BackwardBegins() override { calls_.push_back(-1); }
  absl::Status BlockReady(int block) override {
    calls_.push_back(block);
    return block == refused_ ? absl::AbortedError("no more") : absl::OkStatus();
  }
  std::vector<int> calls_;
  int refused_ = -1;
};

class BreakingGate final : public WeightsGate {
 public:
  absl::Status WaitForBlock(int block) override {
    return block == broken_ ? absl::AbortedError("the life is over") : absl::OkStatus();
  }
  int broken_ = -1;
};

TEST_F(ReplicatedModelTest, BlocksAreReportedOnceInTheOrderOfBackward) {
  const kernels::DeviceSet cards = MakeTestCards(3);
  const std::unique_ptr<Model> model = ModelOn(cards);
  RecordingSink sink;
  BreakingGate gate;
  ASSERT_OK(model->TrainStep(batch_, &gate, &sink));
  std::vector<int> expected = {-1};
  for (int block = model->layout().num_blocks() - 1; block >= 0; --block) expected.push_back(block);
  EXPECT_EQ(sink.calls_, expected);
}

// An error on one card ends the steps of all cards. The next step must succeed.
TEST_F(ReplicatedModelTest, StepThatIsCutShortCanBeTakenAgain) {
  const kernels::DeviceSet cards = MakeTestCards(3);
  const std::unique_ptr<Model> model = ModelOn(cards);
  ASSERT_OK(model->TrainStep(batch_, nullptr, nullptr));
  const std::vector<double> expected = GradientOf(cards, *model);
  BreakingGate gate;
  RecordingSink sink;
  gate.broken_ = 1;
  EXPECT_EQ(model->TrainStep(batch_, &gate, &sink).status(),
            absl::AbortedError("the life is over"));
  EXPECT_EQ(model->Evaluate(batch_, &gate).status(), absl::AbortedError("the life is over"));
  gate.broken_ = -1;
  sink.refused_ = 1;
  EXPECT_EQ(model->TrainStep(batch_, &gate, &sink).status(), absl::AbortedError("no more"));
  ASSERT_OK(model->TrainStep(batch_, &gate, nullptr));
  EXPECT_EQ(GradientOf(cards, *model), expected);
}

TEST_F(ReplicatedModelTest, BadSampleOfOneCardIsAnErrorOfTheStep) {
  const kernels::DeviceSet cards = MakeTestCards(2);
  const std::unique_ptr<Model> model = ModelOn(cards);
  data::HostBatch bad = batch_;
  bad.tokens.back() = 1 << 20;
  const auto result = model->TrainStep(bad, nullptr, nullptr);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("1048576"));
  ASSERT_OK(model->TrainStep(batch_, nullptr, nullptr));
  EXPECT_EQ(model->TrainStep({}, nullptr, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lodestar::model
