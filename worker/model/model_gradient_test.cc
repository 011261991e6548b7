// SPDX-License-Identifier: Apache-2.0

// Tests hand-written backward against central differences, in f64 on the oracle.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "worker/model/model.h"
#include "worker/model/testing/synthetic_training.h"

namespace lodestar::model {
namespace {

// The truncation error is h^2 f'''/6 = 2e-11 f'''. The rounding error is eps * loss / h = 1e-10.
// Their sum is well below the tolerances.
constexpr double kStep = 1e-5;
constexpr double kRelativeTolerance = 1e-6;
constexpr double kAbsoluteTolerance = 2e-9;
// Number of elements that are tested of each tensor. It is the same for all tensors, so that small
// tensors (norms, biases) are tested too.
constexpr int kElementsPerTensor = 8;

class ModelGradientTest : public testing::TestWithParam<params::ModelSpec> {
 protected:
  void SetUp() override {
    device_ = *factory::MakeDevice("oracle", 0, nullptr);
    model_ = *MakeModel({GetParam(), /*max_batch=*/3}, device_.get());
    batch_ = RandomBatch(GetParam(), 3, /*seed=*/5);
    batch_.first_position = 1001;
    parameters_ = RandomParameters(model_->layout(), /*noise=*/0.1, /*seed=*/7);
    WriteBuf(device_.get(), model_->parameters(), parameters_);
  }

  double LossWith(int64_t element, double value) {
    const double saved = parameters_[element];
    parameters_[element] = value;
    WriteBuf(device_.get(), model_->parameters(), parameters_);
    parameters_[element] = saved;
    return MeanLoss();
  }

  // Returns the mean loss of a training step. Every call drops the same elements, because dropout
  // depends only on the batch's position.
  double MeanLoss() {
    const BatchResult result = *model_->TrainStep(batch_, nullptr, nullptr);
    return result.loss_sum / result.num_predictions;
  }

  double CentralDifference(int64_t element) {
    const double value = parameters_[element];
    return (LossWith(element, value + kStep) - LossWith(element, value - kStep)) / (2 * kStep);
  }

  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<Model> model_;
  data::HostBatch batch_;
  std::vector<double> parameters_;
};

TEST_P(ModelGradientTest, EqualsCentralDifferences) {
  ASSERT_TRUE(model_->TrainStep(batch_, nullptr, nullptr).ok());
  const std::vector<double> gradient = ReadBuf(device_.get(), model_->gradients());
  std::mt19937_64 random(11);
  for (const params::TensorSpec& tensor : model_->layout().tensors()) {
    for (int i = 0; i < kElementsPerTensor; ++i) {
      const int64_t element = tensor.offset + random() % tensor.num_elements();
      const double expected = CentralDifference(element);
      ASSERT_NEAR(gradient[element], expected,
                  kAbsoluteTolerance + kRelativeTolerance * std::abs(expected))
          << tensor.name << " element " << element - tensor.offset;
    }
  }
}

// Random single elements may miss a part of a tensor. A random direction changes all elements.
TEST_P(ModelGradientTest, EqualsCentralDifferencesAlongRandomDirections) {
  constexpr int kDirections = 4;
  ASSERT_TRUE(model_->TrainStep(batch_, nullptr, nullptr).ok());
  const std::vector<double> gradient = ReadBuf(device_.get(), model_->gradients());
  const auto loss_at = [this](const std::vector<double>& direction, double step) {
    std::vector<double> moved = parameters_;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
    WriteBuf(device_.get(), model_->parameters(), moved);
    return MeanLoss();
  };
  for (int seed = 0; seed < kDirections; ++seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> direction(parameters_.size());
    // The direction has about unit length, so that one step does not reach the kinks of ReLU and
    // pooling.
    for (double& value : direction) value = normal(random) / std::sqrt(parameters_.size());
    double expected = 0.0;
    for (size_t i = 0; i < direction.size(); ++i) expected += direction[i] * gradient[i];
    const double difference =
        (loss_at(direction, kStep) - loss_at(direction, -kStep)) / (2 * kStep);
    EXPECT_NEAR(expected, difference,
                kAbsoluteTolerance + kRelativeTolerance * std::abs(difference));
  }
}

std::vector<params::ModelSpec> AllSpecs() {
  std::vector<params::ModelSpec> specs = SmallModelSpecs();
  specs.push_back(SmallDroppingGptSpec());
  return specs;
}

INSTANTIATE_TEST_SUITE_P(Architectures, ModelGradientTest, testing::ValuesIn(AllSpecs()),
                         [](const testing::TestParamInfo<params::ModelSpec>& info) {
                           std::string name = info.param.name;
                           name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
                           return name;
                         });

}  // namespace
}  // namespace lodestar::model
