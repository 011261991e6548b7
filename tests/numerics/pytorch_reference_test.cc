// SPDX-License-Identifier: Apache-2.0

// Compares the losses of several AdamW steps and the gradients of the first step with what PyTorch
// computes in fp64 (pytorch_reference.txt, written by pytorch_reference.py).
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"
#include "tests/numerics/formula_training.h"
#include "worker/model/device_memory.h"
#include "worker/model/model.h"
#include "worker/model/testing/synthetic_training.h"

namespace lodestar {
namespace {

constexpr int64_t kSamples = 3;

struct GradientSummary {
  double norm = 0.0;
  double projection = 0.0;
};

struct Reference {
  std::vector<double> losses;
  std::vector<GradientSummary> gradients;
};

std::map<std::string, Reference> ReadReferences() {
  std::map<std::string, Reference> references;
  std::ifstream file("tests/numerics/pytorch_reference.txt");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string kind, model;
    size_t index = 0;
    fields >> kind >> model >> index;
    Reference& reference = references[model];
    if (kind == "loss") {
      EXPECT_EQ(index, reference.losses.size());
      fields >> reference.losses.emplace_back();
    } else if (kind == "gradient") {
      EXPECT_EQ(index, reference.gradients.size());
      GradientSummary& summary = reference.gradients.emplace_back();
      fields >> summary.norm >> summary.projection;
    }
  }
  return references;
}

// Computes the same summary as pytorch_reference.py.
GradientSummary Summarize(const std::vector<double>& gradient, const params::TensorSpec& tensor) {
  GradientSummary summary;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const double value = gradient[tensor.offset + i];
    summary.norm += value * value;
    summary.projection += value * std::cos(0.7 * static_cast<double>(i));
  }
  summary.norm = std::sqrt(summary.norm);
  return summary;
}

class PytorchReferenceTest : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const auto& [model_name, device_kind] = GetParam();
    device_ = *factory::MakeDevice(device_kind, /*threads=*/1, nullptr);
    const params::ModelSpec spec =
        model_name == "small-gpt" ? model::SmallGptSpec() : *params::ModelPreset(model_name);
    model_ = *model::MakeModel({spec, /*max_batch=*/2}, device_.get());
    batch_ = FormulaBatch(spec, kSamples);
    const std::vector<float> weights = FormulaWeights(model_->layout());
    model::WriteBuf(device_.get(), model_->parameters(), {weights.begin(), weights.end()});
    reference_ = ReadReferences()[model_name];
    ASSERT_GE(reference_.losses.size(), 3);
    ASSERT_EQ(reference_.gradients.size(), model_->layout().tensors().size());
    AllocateMoments();
  }

  void AllocateMoments() {
    const kernels::Buf weights = model_->parameters();
    memory_ = *model::DeviceMemory::Allocate(
        device_.get(), 2 * weights.num_elements * kernels::DTypeBytes(weights.dtype));
    moments_ = {memory_.data(), weights.dtype, 2 * weights.num_elements};
    device_->Fill(moments_, 0.0);
  }

  void StepAdamW(int64_t step) {
    const int64_t elements = model_->layout().num_elements();
    for (const auto& [range, decay] : DecayRanges(model_->layout())) {
      device_->AdamWUpdate(model_->parameters().Slice(range.begin, range.size()),
                           moments_.Slice(range.begin, range.size()),
                           moments_.Slice(elements + range.begin, range.size()),
                           model_->gradients().Slice(range.begin, range.size()), /*narrow=*/{},
                           {.learning_rate = 1e-3,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .epsilon = 1e-8,
                            .weight_decay = decay ? 0.1 : 0.0,
                            .step = step});
    }
  }

  bool is_oracle() const { return std::get<1>(GetParam()) == "oracle"; }
  // The file has 13 digits, and another sin() may round one weight in millions to another f32. f32
  // has 7 digits, of which sums over a few hundred products and cancellation cost two.
  double tolerance() const { return is_oracle() ? 1e-9 : 2e-5; }

  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<model::Model> model_;
  data::HostBatch batch_;
  Reference reference_;
  model::DeviceMemory memory_;
  kernels::Buf moments_;
};

TEST_P(PytorchReferenceTest, GradientsAreEqual) {
  ASSERT_TRUE(model_->TrainStep(batch_, nullptr, nullptr).ok());
  const std::vector<double> gradient = model::ReadBuf(device_.get(), model_->gradients());
  double largest_norm = 0.0;
  for (const GradientSummary& want : reference_.gradients) {
    largest_norm = std::max(largest_norm, want.norm);
  }
  for (size_t i = 0; i < reference_.gradients.size(); ++i) {
    const params::TensorSpec& tensor = model_->layout().tensors()[i];
    const GradientSummary got = Summarize(gradient, tensor);
    const GradientSummary& want = reference_.gradients[i];
    // A gradient that is zero or nearly zero in theory consists of rounding errors of its terms. So
    // the tolerance has a part relative to the largest norm.
    const double tolerated = tolerance() * (want.norm + 1e-2 * largest_norm);
    EXPECT_NEAR(got.norm, want.norm, tolerated) << tensor.name;
    EXPECT_NEAR(got.projection, want.projection, 2 * tolerated) << tensor.name;
  }
}

TEST_P(PytorchReferenceTest, LossesOfAdamWStepsAreEqual) {
  for (size_t i = 0; i < reference_.losses.size(); ++i) {
    const model::BatchResult result = *model_->TrainStep(batch_, nullptr, nullptr);
    const double want = reference_.losses[i];
    EXPECT_NEAR(result.loss_sum / result.num_predictions, want, tolerance() * want) << "step " << i;
    StepAdamW(static_cast<int64_t>(i) + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(ModelsAndDevices, PytorchReferenceTest,
                         testing::Combine(testing::Values("mlp", "cnn", "small-gpt"),
                                          testing::Values("cpu", "oracle")));

}  // namespace
}  // namespace lodestar
