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

// [losses | correct | logits], in fp32.
template <typename T>
std::vector<float> Outcome(const Case& c, const std::vector<T>& logits,
                           const std::vector<int32_t>& targets, double scale) {
  return InBothOrders([&](KernelTestRig& rig) {
    float* losses = rig.Allocate<float>(c.rows);
    int32_t* correct = rig.Allocate<int32_t>(c.rows);
    T* in_place = rig.Upload(logits);
    EXPECT_EQ(SoftmaxCrossEntropy(losses, correct, in_place, rig.Upload(targets), c.rows, c.classes,
                                  c.row_stride, scale, rig.stream()),
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
  // Padding that would dominate the loss, or make it NaN.
  std::vector<T> logits(c.rows * c.row_stride, RoundedTo<T>(NAN));
  std::vector<int32_t> targets(c.rows);
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t i = 0; i < c.classes; ++i) {
      logits[row * c.row_stride + i] = RoundedTo<T>(4.0f * Noise(row * c.classes + i));
    }
    targets[row] = static_cast<int32_t>((row * 7919 + c.classes - 1) % c.classes);
  }
  const std::vector<float> got = Outcome(c, logits, targets, kScale);
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
