// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/inner_optimizer.h"

#include <cmath>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/factory/device_factory.h"

namespace lodestar::trainer {
namespace {

// Tolerance for results in fp32: the error of a few roundings of values around 1.
constexpr float kRoundings = 1e-6f;

class InnerOptimizerTest : public ::testing::Test {
 protected:
  InnerOptimizerTest() : device_(*factory::MakeDevice("cpu", 1, nullptr)) {
    params::TensorSpec matrix{
        .name = "matrix", .shape = {2}, .block = 0, .decay = true, .initializer = {}};
    params::TensorSpec bias{
        .name = "bias", .shape = {2}, .block = 0, .decay = false, .initializer = {}};
    layout_ = *params::Layout::FromTensors({matrix, bias});
  }

  std::vector<float> Step(const job::OptimizerSettings& settings, int steps, double clip_norm) {
    auto optimizer = *InnerOptimizer::Create(settings, layout_, device_.get());
    std::vector<float> weights = {1.0f, 1.0f, 1.0f, 1.0f};
    for (int i = 0; i < steps; ++i) {
      std::vector<float> gradient = {3.0f, 0.0f, 4.0f, 0.0f};  // norm 5
      EXPECT_OK(optimizer->Step(kernels::Buf{weights.data(), kernels::DType::kF32, 4},
                                kernels::Buf{narrow_.data(), kernels::DType::kF64, 4},
                                kernels::Buf{gradient.data(), kernels::DType::kF32, 4}, 0.1,
                                clip_norm));
    }
    EXPECT_EQ(std::vector<float>(narrow_.begin(), narrow_.end()), weights);
    return weights;
  }

  std::unique_ptr<kernels::Device> device_;
  params::Layout layout_;
  std::vector<double> narrow_ = std::vector<double>(4);
};

TEST_F(InnerOptimizerTest, SgdDecaysOnlyMarkedTensors) {
  const auto weights = Step({.kind = job::OptimizerKind::kSgd, .weight_decay = 0.5}, 1, 0.0);
  EXPECT_NEAR(weights[0], 0.95f - 0.3f, kRoundings);
  EXPECT_NEAR(weights[1], 0.95f, kRoundings);
  EXPECT_NEAR(weights[2], 0.6f, kRoundings);
  EXPECT_NEAR(weights[3], 1.0f, kRoundings);
}

TEST_F(InnerOptimizerTest, ClipScalesTheWholeGradientToTheNorm) {
  const auto weights = Step({.kind = job::OptimizerKind::kSgd}, 1, 1.0);
  EXPECT_NEAR(weights[0], 1.0f - 0.06f, kRoundings);
  EXPECT_NEAR(weights[2], 1.0f - 0.08f, kRoundings);
}

TEST_F(InnerOptimizerTest, MomentumKeepsItsStateBetweenSteps) {
  const auto weights = Step({.kind = job::OptimizerKind::kMomentum, .momentum = 0.5}, 2, 0.0);
  EXPECT_NEAR(weights[0], 1.0f - 0.1f * (3.0f + 4.5f), kRoundings);
}

TEST_F(InnerOptimizerTest, AdamWMovesByTheLearningRateAtFirst) {
  const auto weights = Step({.kind = job::OptimizerKind::kAdamW}, 1, 0.0);
  EXPECT_NEAR(weights[0], 0.9f, kRoundings);
  EXPECT_NEAR(weights[1], 1.0f, kRoundings);
}

TEST_F(InnerOptimizerTest, SpoiltStateBeginsAnewAndOtherStateStays) {
  for (const job::OptimizerKind kind :
       {job::OptimizerKind::kMomentum, job::OptimizerKind::kAdamW}) {
    const auto optimizer = *InnerOptimizer::Create({.kind = kind}, layout_, device_.get());
    // Makes one step from the same weights in each call. Only the optimizer's state is kept between
    // calls.
    const auto step = [&](float first) {
      std::vector<float> weights = {1.0f, 1.0f, 1.0f, 1.0f};
      std::vector<float> gradient = {first, 0.5f, 0.5f, 0.5f};
      const kernels::Buf on_device = {weights.data(), kernels::DType::kF32, 4};
      EXPECT_OK(optimizer->Step(on_device, kernels::Buf{},
                                kernels::Buf{gradient.data(), kernels::DType::kF32, 4}, 0.1, 0.0));
      const absl::StatusOr<bool> is_finite = optimizer->ResetUnlessFinite(on_device);
      EXPECT_OK(is_finite);
      return std::pair(*is_finite, weights);
    };
    const auto [first_is_finite, first] = step(0.5f);
    const auto [second_is_finite, second] = step(0.25f);
    EXPECT_TRUE(first_is_finite && second_is_finite);
    EXPECT_FALSE(step(kind == job::OptimizerKind::kAdamW ? 1e30f : std::nanf("")).first)
        << "its square overflows, and the element would not move any more";
    EXPECT_EQ(step(0.5f).second, first);
    EXPECT_EQ(step(0.25f).second, second);
  }
}

}  // namespace
}  // namespace lodestar::trainer
