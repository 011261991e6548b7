// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_test_rig.h"

namespace lodestar::cuda {
namespace {

struct Case {
  int64_t rows, classes, row_stride;
};

// Returns losses, correct and logits, converted to fp32. If `correct` is not computed, its elements
// are -1.
template <typename T>
std::vector<float> Outcome(const Case& c, const std::vector<T>& logits,
                           const std::vector<int32_t>& targets, double scale, bool counts = true) {
  return InBothOrders([&](KernelTestRig& rig) {
    float* losses = rig.Allocate<float>(c.rows);
    int32_t* correct = rig.Upload(std::vector<int32_t>(c.rows, -1));
    T* in_place = rig.Upload(logits);
    EXPECT_EQ(SoftmaxCrossEntropy(losses, counts ? correct : nullptr, in_place, rig.Upload(targets),
                                  c.rows, c.classes, c.row_stride, scale, rig.stream()),
              cudaSuccess);
    std::vector<float> result = rig.Download(losses, c.rows);
    for (int32_t value : rig.Download(correct, c.rows)) {
      result.push_back(static_cast<float>(value));
    }
    for (T value : rig.Download(in_place, logits.size())) result.push_back(AsFloat(value));
    return result;
  });
}

template <typename T>
void ExpectConforms(const Case& c) {
  constexpr double kScale = 0.5;
  // The padding is NaN. If a kernel read it, the loss would be NaN.
  std::vector<T> logits(c.rows * c.row_stride, RoundedTo<T>(NAN));
  std::vector<int32_t> targets(c.rows);
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t i = 0; i < c.classes; ++i) {
      logits[row * c.row_stride + i] = RoundedTo<T>(4.0f * Noise(row * c.classes + i));
    }
    targets[row] = static_cast<int32_t>((row * 7919 + c.classes - 1) % c.classes);
  }
  const std::vector<float> got = Outcome(c, logits, targets, kScale);
  std::vector<float> uncounted = Outcome(c, logits, targets, kScale, /*counts=*/false);
  EXPECT_EQ(std::count(uncounted.begin() + c.rows, uncounted.begin() + 2 * c.rows, -1.0f), c.rows);
  std::copy_n(got.begin() + c.rows, c.rows, uncounted.begin() + c.rows);
  EXPECT_EQ(uncounted, got) << "the count changes neither loss nor gradient";
  for (int64_t row = 0; row < c.rows; ++row) {
    const auto x = [&](int64_t i) { return double{AsFloat(logits[row * c.row_stride + i])}; };
    double sum = 0.0;
    int64_t largest = 0;
    for (int64_t i = 0; i < c.classes; ++i) {
      sum += std::exp(x(i));
      if (x(i) > x(largest)) largest = i;
    }
    EXPECT_NEAR(got[row], std::log(sum) - x(targets[row]), 1e-5) << c.classes;
    EXPECT_EQ(got[c.rows + row], largest == targets[row] ? 1.0f : 0.0f);
    for (int64_t i = 0; i < c.row_stride; ++i) {
      const double want =
          i < c.classes ? (std::exp(x(i)) / sum - (i == targets[row] ? 1.0 : 0.0)) * kScale : 0.0;
      ASSERT_NEAR(got[2 * c.rows + row * c.row_stride + i], want, 4.0f * kUnit<T>)
          << c.classes << " classes, row " << row << ", " << i;
    }
  }
}

TEST(SoftmaxTest, RowsOfEveryLength) {
  for (const Case& c :
       {Case{3, 1, 1}, Case{5, 10, 10}, Case{3, 33, 40}, Case{2, 256, 256}, Case{2, 4097, 4104}}) {
    ExpectConforms<float>(c);
    ExpectConforms<__nv_bfloat16>(c);
  }
}

TEST(SoftmaxTest, VocabularyOfGpt2InPaddedRows) {
  ExpectConforms<__nv_bfloat16>({1, 50257, 50304});
  ExpectConforms<float>({1, 50257, 50304});
}

TEST(SoftmaxTest, TheLowestOfEqualsIsCorrect) {
  const std::vector<float> logits = {1, 3, 3, 0, 3, 1, 3, 0, 0, 0, 0, 0, -INFINITY, 2, 1, 0};
  const std::vector<float> got = Outcome<float>({4, 4, 4}, logits, {1, 2, 1, 1}, 0.0);
  EXPECT_EQ(std::vector<float>(got.begin() + 4, got.begin() + 8), (std::vector<float>{1, 0, 0, 1}));
  EXPECT_EQ(std::vector<float>(got.begin() + 8, got.end()), logits) << "no gradient was asked for";
}

// Some elements of the row equal the target's logit: before and after the target, in other threads,
// in other warps, and after the last whole vector.
TEST(SoftmaxTest, EqualsAreFoundInTheWholeRowBeforeTheTarget) {
  const Case c{1, 9001, 9008};
  for (int32_t target : {0, 7, 300, 8999, 9000}) {
    for (int32_t equal : {0, 5, 299, 8998, 9000}) {
      std::vector<float> logits(c.row_stride, 0.5f);
      logits[target] = 3.0f;
      logits[equal] = 3.0f;
      const bool is_first = target <= equal;
      EXPECT_EQ(Outcome<float>(c, logits, {target}, 0.5)[1], is_first ? 1.0f : 0.0f)
          << target << ", " << equal;
    }
  }
}

// The rows have: logits whose exponentials are too large for fp32; logits whose differences are as
// small as the rounding error of an anchor; and -inf.
TEST(SoftmaxTest, LogitsOfEveryMagnitude) {
  const Case c{6, 3, 4};
  const float inf = INFINITY;
  const std::vector<float> logits = {
      3000,    2999,  -3000,   0,  //
      -5000,   -5001, -5000,   0,  //
      12345.5, 0,     12345.5, 0,  //
      -inf,    2,     2,       0,  //
      500,     -inf,  -inf,    0,  //
      -inf,    -inf,  -inf,    0,
  };
  const std::vector<float> got = Outcome<float>(c, logits, {0, 0, 2, 1, 0, 0}, 1.0);
  const auto near = [&](int64_t row, std::vector<double> want) {
    for (size_t i = 0; i < want.size(); ++i) {
      const float x = i == 0 ? got[row] : got[2 * c.rows + row * c.row_stride + i - 1];
      EXPECT_NEAR(x, want[i], 4.0f * kUnit<float>) << row << ", " << i;
    }
  };
  const double e = std::exp(-1.0);
  near(0, {std::log1p(e), 1 / (1 + e) - 1, e / (1 + e), 0, 0});
  near(1, {std::log(2 + e), 1 / (2 + e) - 1, e / (2 + e), 1 / (2 + e), 0});
  near(2, {std::log(2), 0.5, 0, -0.5, 0});
  near(3, {std::log(2), 0, -0.5, 0.5, 0});
  near(4, {0, 0, 0, 0, 0});
  EXPECT_TRUE(std::isnan(got[5])) << "nothing is possible";
}

// The rounding error of the anchor must not change the result.
TEST(SoftmaxTest, ACertainTargetHasNoLossAndNoGradient) {
  for (int i = 0; i < 50; ++i) {
    const float certain = 40.0f + 3.7f * static_cast<float>(i);
    const std::vector<float> got = Outcome<float>({1, 2, 2}, {certain, certain - 200.0f}, {0}, 0.3);
    EXPECT_EQ(got, (std::vector<float>{0, 1, 0, 0})) << certain;
  }
}

// A NaN at any position makes the loss NaN, also if NaNs are the only elements of a thread.
TEST(SoftmaxTest, ANaNShowsInTheLoss) {
  for (size_t at : {0, 9, 511, 4095}) {
    std::vector<float> logits(4096, 1.0f);
    std::fill_n(logits.begin() + static_cast<int64_t>(at / 4 * 4), 4, NAN);
    EXPECT_TRUE(std::isnan(Outcome<float>({1, 4096, 4096}, logits, {77}, 0.0)[0])) << at;
  }
}

TEST(SoftmaxTest, RowsBeyond32BitsAreRefused) {
  KernelTestRig rig(emulator::ThreadOrder::kForward);
  EXPECT_EQ(SoftmaxCrossEntropy<float>(nullptr, nullptr, nullptr, nullptr, 1, 10, int64_t{1} << 31,
                                       1.0, rig.stream()),
            cudaErrorInvalidValue);
}

TEST(SoftmaxTest, ATargetOutsideTheClassesGivesNaNInItsRowOnly) {
  const std::vector<float> logits(3 * 8, 1.0f);
  for (int32_t bad : {-1, 8, 1 << 30}) {
    const std::vector<float> got = Outcome<float>({3, 8, 8}, logits, {0, bad, 7}, 1.0);
    EXPECT_FALSE(std::isnan(got[0]));
    EXPECT_TRUE(std::isnan(got[1]));
    EXPECT_EQ(got[4], 0.0f);
    EXPECT_FALSE(std::isnan(got[2]));
    EXPECT_EQ(std::count_if(got.begin() + 6, got.end(), [](float x) { return std::isnan(x); }), 8);
  }
}

}  // namespace
}  // namespace lodestar::cuda
