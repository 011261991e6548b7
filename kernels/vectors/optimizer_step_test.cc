// SPDX-License-Identifier: Apache-2.0

#include "kernels/vectors/optimizer_step.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace lodestar::vectors {
namespace {

constexpr kernels::AdamWStep kAdamW{.learning_rate = 0.01,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .epsilon = 1e-8,
                                    .weight_decay = 0.1,
                                    .gradient_scale = 0.3,
                                    .step = 3};
constexpr kernels::MomentumStep kMomentum{.learning_rate = 0.1,
                                          .momentum = 0.9,
                                          .weight_decay = 0.01,
                                          .gradient_scale = 0.3,
                                          .nesterov = true};

struct State {
  std::vector<float> weights, first, second, gradient;

  explicit State(size_t n) {
    std::mt19937 generator(11);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (std::vector<float>* v : {&weights, &first, &second, &gradient}) {
      v->resize(n);
      for (float& x : *v) x = uniform(generator);
    }
    for (float& x : second) x = std::abs(x);
  }
};

absl::Span<float> Cut(std::vector<float>& v, size_t begin, size_t end) {
  return absl::MakeSpan(v).subspan(begin, end - begin);
}

void StepAdamW(State& s, size_t begin, size_t end) {
  AdamWStepCpu(Cut(s.weights, begin, end), Cut(s.weights, begin, end), Cut(s.first, begin, end),
               Cut(s.second, begin, end), Cut(s.gradient, begin, end), kAdamW);
}

void StepMomentum(State& s, size_t begin, size_t end) {
  SgdMomentumStep(Cut(s.weights, begin, end), Cut(s.weights, begin, end), Cut(s.first, begin, end),
                  Cut(s.gradient, begin, end), kMomentum);
}

void StepSgd(State& s, size_t begin, size_t end) {
  SgdMomentumStep(Cut(s.weights, begin, end), Cut(s.weights, begin, end), {},
                  Cut(s.gradient, begin, end), kMomentum);
}

TEST(OptimizerStepTest, CuttingAnywhereGivesTheSameBits) {
  constexpr size_t kSize = 77;
  for (auto* step : {StepAdamW, StepMomentum, StepSgd}) {
    State whole(kSize);
    step(whole, 0, kSize);
    for (size_t cut = 0; cut <= kSize; ++cut) {
      State parts(kSize);
      step(parts, 0, cut);
      step(parts, cut, kSize);
      ASSERT_EQ(parts.weights, whole.weights) << "cut=" << cut;
      ASSERT_EQ(parts.first, whole.first) << "cut=" << cut;
      ASSERT_EQ(parts.second, whole.second) << "cut=" << cut;
    }
  }
}

TEST(OptimizerStepTest, SeparateOutputLeavesTheInputAlone) {
  State in_place(33), separate(33);
  const std::vector<float> before = separate.weights;
  std::vector<float> out(33, std::numeric_limits<float>::quiet_NaN());
  StepAdamW(in_place, 0, 33);
  AdamWStepCpu(absl::MakeSpan(out), separate.weights, absl::MakeSpan(separate.first),
               absl::MakeSpan(separate.second), separate.gradient, kAdamW);
  EXPECT_EQ(out, in_place.weights);
  EXPECT_EQ(separate.weights, before);
}

TEST(OptimizerStepTest, CpuDeviceGivesTheSameBits) {
  constexpr size_t kSize = 70001;
  const auto buf = [](std::vector<float>& v) {
    return kernels::Buf{v.data(), kernels::DType::kF32, static_cast<int64_t>(v.size())};
  };
  const std::unique_ptr<kernels::Device> device = cpu::MakeCpuDevice(3);
  State server(kSize), worker(kSize);
  StepAdamW(server, 0, kSize);
  device->AdamWUpdate(buf(worker.weights), buf(worker.first), buf(worker.second),
                      buf(worker.gradient), /*narrow=*/{}, kAdamW);
  EXPECT_EQ(server.weights, worker.weights);
  StepMomentum(server, 0, kSize);
  device->MomentumUpdate(buf(worker.weights), buf(worker.first), buf(worker.gradient),
                         /*narrow=*/{}, kMomentum);
  EXPECT_EQ(server.weights, worker.weights);
  EXPECT_EQ(server.first, worker.first);
}

TEST(OptimizerStepTest, WithoutDecayAndGradientWeightsStay) {
  State s(5);
  const std::vector<float> before = s.weights;
  s.gradient.assign(5, 0.0f);
  s.first.assign(5, 0.0f);
  kernels::MomentumStep step = kMomentum;
  step.weight_decay = 0.0;
  SgdMomentumStep(absl::MakeSpan(s.weights), s.weights, absl::MakeSpan(s.first), s.gradient, step);
  EXPECT_EQ(s.weights, before);
  step.weight_decay = 0.5;
  SgdMomentumStep(absl::MakeSpan(s.weights), s.weights, absl::MakeSpan(s.first), s.gradient, step);
  for (size_t i = 0; i < 5; ++i) {
    // The error is a single rounding, of w * (1 - lr * decay).
    EXPECT_NEAR(s.weights[i], before[i] * 0.95f, 1e-7f);
  }
}

TEST(OptimizerStepTest, NanStaysWhereItIs) {
  State s(20), clean(20);
  s.gradient[7] = std::numeric_limits<float>::quiet_NaN();
  StepAdamW(s, 0, 20);
  StepAdamW(clean, 0, 20);
  for (size_t i = 0; i < 20; ++i) {
    if (i == 7) {
      EXPECT_TRUE(std::isnan(s.weights[i]));
    } else {
      EXPECT_EQ(s.weights[i], clean.weights[i]);
    }
  }
}

}  // namespace
}  // namespace lodestar::vectors
