// SPDX-License-Identifier: Apache-2.0

// Compares every backward operation of the oracle with central differences of its forward
// operation.
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/oracle/oracle_device.h"

namespace lodestar::oracle {
namespace {

// The truncation error of central differences in fp64 is about kStep^2 = 1e-10. The rounding error
// is about 1e-16 / kStep = 1e-11.
constexpr double kStep = 1e-5;
constexpr double kRelativeTolerance = 1e-6;
// Most gradients are about 1. For gradients below this value, the relative error is computed with
// this value instead.
constexpr double kFloor = 1e-3;

using Tensors = std::map<std::string, std::vector<double>>;

kernels::Buf View(std::vector<double>& values) {
  return kernels::Buf{values.data(), kernels::DType::kF64, static_cast<int64_t>(values.size())};
}

class OracleGradientTest : public testing::Test {
 protected:
  // Returns values uniform in [-1, 1), but not within 0.01 of 0, where a ReLU has no derivative.
  std::vector<double> Random(int64_t n) {
    std::uniform_real_distribution<double> uniform(0.01, 1.0);
    std::vector<double> values(n);
    for (double& value : values) value = uniform(generator_) * (generator_() % 2 == 0 ? 1.0 : -1.0);
    return values;
  }

  // Checks that `gradients` has the derivatives of `loss` with respect to the tensors of `inputs`.
  // The tensors of both have the same names.
  void ExpectGradients(Tensors inputs, const std::function<double(Tensors&)>& loss,
                       const Tensors& gradients) {
    for (const auto& [name, gradient] : gradients) {
      ASSERT_EQ(gradient.size(), inputs.at(name).size()) << name;
      for (size_t i = 0; i < gradient.size(); ++i) {
        double& x = inputs.at(name)[i];
        const double saved = x;
        x = saved + kStep;
        const double above = loss(inputs);
        x = saved - kStep;
        const double below = loss(inputs);
        x = saved;
        const double want = (above - below) / (2.0 * kStep);
        ASSERT_NEAR(gradient[i], want, kRelativeTolerance * std::max(std::abs(want), kFloor))
            << name << "[" << i << "]";
      }
    }
  }

  static double Dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0.0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  std::mt19937 generator_{7};
  OracleDevice device_;
};

TEST_F(OracleGradientTest, LinearWithEveryActivation) {
  constexpr int64_t kRows = 3, kIn = 4, kOut = 5;
  for (kernels::Activation activation :
       {kernels::Activation::kNone, kernels::Activation::kRelu, kernels::Activation::kGeluTanh}) {
    for (kernels::WeightOrder order :
         {kernels::WeightOrder::kOutIn, kernels::WeightOrder::kInOut}) {
      Tensors inputs = {{"x", Random(kRows * kIn)}, {"w", Random(kOut * kIn)}, {"b", Random(kOut)}};
      const std::vector<double> weights = Random(kRows * kOut);
      std::vector<double> y(kRows * kOut), pre(kRows * kOut);
      const auto loss = [&](Tensors& t) {
        device_.LinearForward(View(y), View(pre), View(t["x"]), View(t["w"]), View(t["b"]), kRows,
                              kIn, kOut, activation, order);
        return Dot(y, weights);
      };
      loss(inputs);
      std::vector<double> dy = weights;
      Tensors gradients = {{"x", std::vector<double>(kRows * kIn)},
                           {"w", std::vector<double>(kOut * kIn)},
                           {"b", std::vector<double>(kOut)}};
      device_.LinearBackward(View(gradients["x"]), View(gradients["w"]), View(gradients["b"]),
                             View(dy), View(pre), View(inputs["x"]), View(inputs["w"]), kRows, kIn,
                             kOut, activation, order, kernels::Accumulate::kSet);
      ExpectGradients(inputs, loss, gradients);
    }
  }
}

TEST_F(OracleGradientTest, LinearBackwardInputThroughEveryActivation) {
  constexpr int64_t kRows = 3, kMiddle = 4, kOut = 5;
  for (kernels::Activation activation :
       {kernels::Activation::kRelu, kernels::Activation::kGeluTanh}) {
    for (kernels::WeightOrder order :
         {kernels::WeightOrder::kOutIn, kernels::WeightOrder::kInOut}) {
      const std::vector<double> identity = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
      std::vector<double> eye = identity, w = Random(kOut * kMiddle);
      // The weights of the first layer are the identity, so the argument of its activation is x +
      // b. So dx, the gradient of this argument, is also the gradient of x.
      Tensors inputs = {{"x", Random(kRows * kMiddle)}, {"b", Random(kMiddle)}};
      const std::vector<double> weights = Random(kRows * kOut);
      std::vector<double> hidden(kRows * kMiddle), pre(kRows * kMiddle), y(kRows * kOut);
      const auto loss = [&](Tensors& t) {
        device_.LinearForward(View(hidden), View(pre), View(t["x"]), View(eye), View(t["b"]), kRows,
                              kMiddle, kMiddle, activation, order);
        device_.LinearForward(View(y), {}, View(hidden), View(w), {}, kRows, kMiddle, kOut,
                              kernels::Activation::kNone, order);
        return Dot(y, weights);
      };
      loss(inputs);
      std::vector<double> dy = weights;
      Tensors gradients = {{"x", std::vector<double>(kRows * kMiddle)},
                           {"b", std::vector<double>(kMiddle)}};
      device_.LinearBackwardInput(View(gradients["x"]), View(gradients["b"]), View(dy), View(pre),
                                  View(w), kRows, kMiddle, kOut, activation, order,
                                  kernels::Accumulate::kSet);
      ExpectGradients(inputs, loss, gradients);
    }
  }
}

TEST_F(OracleGradientTest, ResidualNorm) {
  constexpr int64_t kRows = 3, kWidth = 6;
  Tensors inputs = {{"a", Random(kRows * kWidth)},
                    {"b", Random(kRows * kWidth)},
                    {"gamma", Random(kWidth)},
                    {"beta", Random(kWidth)}};
  const std::vector<double> weights = Random(kRows * kWidth);
  std::vector<double> y(kRows * kWidth), sum(kRows * kWidth), mean(kRows), rstd(kRows);
  const auto loss = [&](Tensors& t) {
    device_.ResidualNormForward(View(y), View(sum), View(mean), View(rstd), View(t["a"]),
                                View(t["b"]), View(t["gamma"]), View(t["beta"]), kRows, kWidth);
    return Dot(y, weights);
  };
  loss(inputs);
  std::vector<double> dy = weights;
  Tensors gradients = {{"a", std::vector<double>(kRows * kWidth)},
                       {"gamma", std::vector<double>(kWidth)},
                       {"beta", std::vector<double>(kWidth)}};
  device_.NormBackward(View(gradients["a"]), View(gradients["gamma"]), View(gradients["beta"]),
                       View(dy), View(sum), View(mean), View(rstd), View(inputs["gamma"]), kRows,
                       kWidth, kernels::Accumulate::kSet, kernels::Accumulate::kSet);
  gradients["b"] = gradients["a"];
  ExpectGradients(inputs, loss, gradients);
}

TEST_F(OracleGradientTest, Attention) {
  for (double rate : {0.0, 0.4}) {
    const kernels::AttentionShape shape{
        .batch = 2,
        .tokens = 5,
        .heads = 2,
        .head_width = 3,
        .dropout = {.rate = rate, .key = 3, .stream = 1, .first_element = 6}};
    const int64_t outputs = shape.batch * shape.tokens * shape.heads * shape.head_width;
    Tensors inputs = {{"qkv", Random(3 * outputs)}};
    const std::vector<double> weights = Random(outputs);
    std::vector<double> y(outputs), log_sum_exp(shape.batch * shape.heads * shape.tokens);
    std::vector<double> workspace(device_.AttentionWorkspaceElements(shape));
    const auto loss = [&](Tensors& t) {
      device_.AttentionForward(View(y), View(log_sum_exp), View(t["qkv"]), View(workspace), shape);
      return Dot(y, weights);
    };
    loss(inputs);
    std::vector<double> dy = weights;
    Tensors gradients = {{"qkv", std::vector<double>(3 * outputs)}};
    device_.AttentionBackward(View(gradients["qkv"]), View(dy), View(y), View(log_sum_exp),
                              View(inputs["qkv"]), View(workspace), shape);
    ExpectGradients(inputs, loss, gradients);
  }
}

// Dropout multiplies the probabilities, whose sum before dropout is 1. All values are 1 here, so
// each output is the scaled sum of the kept probabilities.
TEST_F(OracleGradientTest, AttentionDropsProbabilities) {
  constexpr int64_t kTokens = 64;
  const kernels::AttentionShape shape{.batch = 1,
                                      .tokens = kTokens,
                                      .heads = 1,
                                      .head_width = 1,
                                      .dropout = {.rate = 0.25, .key = 1}};
  // All scores are 0, so all probabilities of query i are 1 / (i + 1).
  std::vector<double> qkv(3 * kTokens), y(kTokens), log_sum_exp(kTokens), workspace(kTokens);
  for (int64_t token = 0; token < kTokens; ++token) qkv[3 * token + 2] = 1.0;
  device_.AttentionForward(View(y), View(log_sum_exp), View(qkv), View(workspace), shape);
  for (int64_t query = 0; query < kTokens; ++query) {
    double kept = 0.0;
    for (int64_t key = 0; key <= query; ++key) {
      kept += kernels::IsKept(shape.dropout, query * kTokens + key) ? 1.0 : 0.0;
    }
    EXPECT_NEAR(y[query], kept / 0.75 / (query + 1), 1e-12) << query;
    EXPECT_NEAR(log_sum_exp[query], std::log(query + 1.0), 1e-12) << query;
  }
}

TEST_F(OracleGradientTest, Embedding) {
  constexpr int64_t kRows = 6, kContext = 3, kWidth = 2, kVocabulary = 4;
  Tensors inputs = {{"tokens", Random(kVocabulary * kWidth)},
                    {"positions", Random(kContext * kWidth)}};
  std::array<int32_t, kRows> ids = {0, 3, 3, 1, 0, 3};
  const kernels::Buf tokens{ids.data(), kernels::DType::kI32, kRows};
  const std::vector<double> weights = Random(kRows * kWidth);
  std::vector<double> y(kRows * kWidth);
  const auto loss = [&](Tensors& t) {
    device_.EmbedForward(View(y), tokens, View(t["tokens"]), View(t["positions"]), kRows, kContext,
                         kWidth);
    return Dot(y, weights);
  };
  std::vector<double> dy = weights;
  Tensors gradients = {{"tokens", std::vector<double>(kVocabulary * kWidth)},
                       {"positions", std::vector<double>(kContext * kWidth)}};
  device_.EmbedBackward(View(gradients["tokens"]), View(gradients["positions"]), View(dy), tokens,
                        kRows, kContext, kWidth, kVocabulary);
  ExpectGradients(inputs, loss, gradients);
}

TEST_F(OracleGradientTest, CrossEntropy) {
  constexpr int64_t kRows = 3, kClasses = 5;
  constexpr double kScale = 0.5;
  Tensors inputs = {{"logits", Random(kRows * kClasses)}};
  std::array<int32_t, kRows> ids = {0, 4, 2};
  const kernels::Buf targets{ids.data(), kernels::DType::kI32, kRows};
  std::vector<double> losses(kRows);
  const auto loss = [&](Tensors& t) {
    device_.SoftmaxCrossEntropy(View(losses), {}, View(t["logits"]), targets, kRows, kClasses,
                                kClasses, 0.0);
    return kScale * Dot(losses, std::vector<double>(kRows, 1.0));
  };
  Tensors gradients = inputs;
  device_.SoftmaxCrossEntropy(View(losses), {}, View(gradients["logits"]), targets, kRows, kClasses,
                              kClasses, kScale);
  ExpectGradients(inputs, loss, gradients);
}

TEST_F(OracleGradientTest, ConvolutionThroughReluAndPooling) {
  const kernels::ConvShape shape{
      .samples = 2, .in_channels = 2, .height = 5, .width = 4, .out_channels = 3};
  const int64_t plane = shape.height * shape.width;
  const int64_t outputs = shape.samples * shape.out_channels * plane;
  const int64_t pooled = shape.samples * shape.out_channels * 2 * 2;
  Tensors inputs = {{"x", Random(shape.samples * shape.in_channels * plane)},
                    {"w", Random(shape.out_channels * shape.in_channels * 9)},
                    {"b", Random(shape.out_channels)}};
  const std::vector<double> weights = Random(pooled);
  std::vector<double> y(outputs), pool(pooled);
  std::vector<uint8_t> where(pooled);
  const kernels::Buf argmax{where.data(), kernels::DType::kU8, pooled};
  const int64_t planes = shape.samples * shape.out_channels;
  const auto loss = [&](Tensors& t) {
    device_.ConvReluForward(View(y), View(t["x"]), View(t["w"]), View(t["b"]), {}, shape);
    device_.MaxPoolForward(View(pool), argmax, View(y), planes, shape.height, shape.width);
    return Dot(pool, weights);
  };
  loss(inputs);
  std::vector<double> dpool = weights;
  std::vector<double> dy(outputs);
  device_.MaxPoolBackward(View(dy), View(dpool), argmax, planes, shape.height, shape.width);
  Tensors gradients = {{"x", std::vector<double>(inputs["x"].size())},
                       {"w", std::vector<double>(inputs["w"].size())},
                       {"b", std::vector<double>(inputs["b"].size())}};
  device_.ConvReluBackward(View(gradients["x"]), View(gradients["w"]), View(gradients["b"]),
                           View(dy), View(y), View(inputs["x"]), View(inputs["w"]), {}, shape,
                           kernels::Accumulate::kSet);
  ExpectGradients(inputs, loss, gradients);
}

}  // namespace
}  // namespace lodestar::oracle
