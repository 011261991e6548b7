#include "worker/trainer/inner_optimizer.h"

#include <cmath>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/device_factory.h"

namespace lodestar {
namespace {

// One update in fp32 differs from exact arithmetic by a few roundings of values around 1.
constexpr float kRoundings = 1e-6f;

class InnerOptimizerTest : public ::testing::Test {
 protected:
  InnerOptimizerTest() : device_(*MakeDevice("cpu", 1, nullptr)) {
    TensorSpec matrix{.name = "matrix", .shape = {2}, .block = 0, .decay = true, .initializer = {}};
    TensorSpec bias{.name = "bias", .shape = {2}, .block = 0, .decay = false, .initializer = {}};
    layout_ = *Layout::FromTensors({matrix, bias});
  }

  std::vector<float> Step(const OptimizerSettings& settings, int steps, double clip_norm) {
    auto optimizer = *InnerOptimizer::Create(settings, layout_, device_.get());
    std::vector<float> weights = {1.0f, 1.0f, 1.0f, 1.0f};
    for (int i = 0; i < steps; ++i) {
      std::vector<float> gradient = {3.0f, 0.0f, 4.0f, 0.0f};  // norm 5
      EXPECT_OK(optimizer->Step(Buf{weights.data(), DType::kF32, 4},
                                Buf{shadow_.data(), DType::kF64, 4},
                                Buf{gradient.data(), DType::kF32, 4}, 0.1, clip_norm));
    }
    EXPECT_EQ(std::vector<float>(shadow_.begin(), shadow_.end()), weights);
    return weights;
  }

  std::unique_ptr<Device> device_;
  Layout layout_;
  std::vector<double> shadow_ = std::vector<double>(4);
};

TEST_F(InnerOptimizerTest, SgdDecaysOnlyMarkedTensors) {
  const auto weights = Step({.kind = OptimizerKind::kSgd, .weight_decay = 0.5}, 1, 0.0);
  EXPECT_NEAR(weights[0], 0.95f - 0.3f, kRoundings);
  EXPECT_NEAR(weights[1], 0.95f, kRoundings);
  EXPECT_NEAR(weights[2], 0.6f, kRoundings);
  EXPECT_NEAR(weights[3], 1.0f, kRoundings);
}

TEST_F(InnerOptimizerTest, ClipScalesTheWholeGradientToTheNorm) {
  const auto weights = Step({.kind = OptimizerKind::kSgd}, 1, 1.0);
  EXPECT_NEAR(weights[0], 1.0f - 0.06f, kRoundings);
  EXPECT_NEAR(weights[2], 1.0f - 0.08f, kRoundings);
}

TEST_F(InnerOptimizerTest, MomentumKeepsItsStateBetweenSteps) {
  const auto weights = Step({.kind = OptimizerKind::kMomentum, .momentum = 0.5}, 2, 0.0);
  EXPECT_NEAR(weights[0], 1.0f - 0.1f * (3.0f + 4.5f), kRoundings);
}

TEST_F(InnerOptimizerTest, AdamWMovesByTheLearningRateAtFirst) {
  const auto weights = Step({.kind = OptimizerKind::kAdamW}, 1, 0.0);
  EXPECT_NEAR(weights[0], 0.9f, kRoundings);
  EXPECT_NEAR(weights[1], 1.0f, kRoundings);
}

}  // namespace
}  // namespace lodestar
