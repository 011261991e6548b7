// SPDX-License-Identifier: Apache-2.0

// Tests properties that the conformance suite of the devices does not test: each instruction set
// alone, the accuracy of the exponential, and vectors that are divided.
#include "kernels/simd/loops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar::simd {
namespace {

constexpr AdamWFactors kAdamW = {.beta1 = 0.9f,
                                 .one_minus_beta1 = 0.1f,
                                 .beta2 = 0.95f,
                                 .one_minus_beta2 = 0.05f,
                                 .gradient_scale = 0.3f,
                                 .decay = 0.001f,
                                 .step_size = 0.01f,
                                 .inverse_root_correction2 = 2.0f,
                                 .epsilon = 1e-8f};

MomentumFactors Momentum(bool nesterov) {
  return {.momentum = 0.9f,
          .gradient_scale = 0.3f,
          .decay = 0.001f,
          .learning_rate = 0.1f,
          .nesterov = nesterov};
}

class LoopsTest : public testing::TestWithParam<const Loops*> {
 protected:
  const Loops& loops_ = *GetParam();

  static std::vector<float> Random(size_t n, uint32_t seed, float low = -1.0f, float high = 1.0f) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform(low, high);
    std::vector<float> values(n);
    for (float& value : values) value = uniform(generator);
    return values;
  }
};

TEST_P(LoopsTest, GeluStaysAccurateOverTheWholeRange) {
  // The bound 3e-7 * |x| is explained in activation.cc. For very negative x the result is a tiny
  // negative number, not NaN.
  std::vector<float> x = Random(4000, 1, -12.0f, 12.0f);
  x.insert(x.end(), {0.0f, -0.0f, 1e-20f, -100.0f, 100.0f, -1e4f, 1e4f});
  std::vector<float> y = x;
  loops_.bias_activation(y.data(), nullptr, nullptr, 1, static_cast<int64_t>(x.size()),
                         kernels::Activation::kGeluTanh);
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = x[i];
    const double want =
        0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v)));
    ASSERT_NEAR(y[i], want, 3e-7 * std::abs(v) + 1e-30) << x[i];
  }
}

TEST_P(LoopsTest, ActivationsKeepNan) {
  for (kernels::Activation activation :
       {kernels::Activation::kRelu, kernels::Activation::kGeluTanh}) {
    std::vector<float> y(17, std::numeric_limits<float>::quiet_NaN());
    loops_.bias_activation(y.data(), nullptr, nullptr, 1, 17, activation);
    for (float value : y) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(LoopsTest, CrossEntropyOfOneClassIsItsDistanceFromTheSum) {
  for (int64_t classes : {2, 15, 16, 17, 100}) {
    // Exp() has an error of up to 2 ulp, and the error of a sum of n terms is added to it.
    const std::vector<float> logits = Random(classes, 2, -20.0f, 20.0f);
    double sum = 0.0;
    for (float value : logits) sum += std::exp(double{value});
    std::vector<float> scratch = logits;
    int32_t correct = -1;
    const float loss = loops_.cross_entropy(scratch.data(), 1, classes, 0.0f, &correct);
    EXPECT_NEAR(loss, std::log(sum) - logits[1], 1e-5);
    EXPECT_EQ(scratch, logits) << "without a scale the logits are not touched";
  }
}

TEST_P(LoopsTest, OptimizersDoNotDependOnCuts) {
  constexpr int64_t kSize = 53;
  const MomentumFactors momentum = Momentum(/*nesterov=*/true);
  const std::vector<float> g = Random(kSize, 3);
  const auto run = [&](int64_t cut) {
    std::vector<float> w = Random(kSize, 4), m = Random(kSize, 5), v = Random(kSize, 6, 0.0f);
    for (const auto& [begin, end] : {std::pair{int64_t{0}, cut}, std::pair{cut, kSize}}) {
      loops_.adamw(&w[begin], &w[begin], &m[begin], &v[begin], &g[begin], end - begin, kAdamW);
      loops_.momentum(&w[begin], &w[begin], &m[begin], &g[begin], end - begin, momentum);
      loops_.add_scaled(&v[begin], &g[begin], 0.3f, end - begin);
    }
    w.insert(w.end(), m.begin(), m.end());
    w.insert(w.end(), v.begin(), v.end());
    return w;
  };
  const std::vector<float> whole = run(kSize - 1);
  for (int64_t cut = 0; cut < kSize; ++cut) ASSERT_EQ(run(cut), whole) << "cut=" << cut;
}

TEST_P(LoopsTest, WhatIsWrittenIsCheckedWhereverItLies) {
  constexpr float kHuge = 3e38f;
  // Tests short vectors, and one vector that is long enough to be written with stores that bypass
  // the caches.
  for (int64_t n : {1, 15, 16, 33, (1 << 18) + 5}) {
    std::vector<float> g(n, 0.5f), w(n, 1.0f), out(n), m(n, 0.0f), v(n, 0.0f);
    EXPECT_TRUE(loops_.adamw(&out[0], &w[0], &m[0], &v[0], &g[0], n, kAdamW));
    EXPECT_TRUE(loops_.momentum(&out[0], &w[0], &m[0], &g[0], n, Momentum(true)));
    EXPECT_TRUE(loops_.momentum(&out[0], &w[0], nullptr, &g[0], n, Momentum(false)));
    EXPECT_TRUE(loops_.write_scaled(&out[0], &w[0], 2.0f, n));
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      for (const float bad : {kHuge, -kHuge, std::numeric_limits<float>::quiet_NaN()}) {
        std::fill(m.begin(), m.end(), 0.0f);
        std::fill(v.begin(), v.end(), 0.0f);
        g[at] = bad;  // the square of `bad` overflows
        EXPECT_FALSE(loops_.adamw(&out[0], &w[0], &m[0], &v[0], &g[0], n, kAdamW)) << at;
        g[at] = 0.5f;
        std::fill(m.begin(), m.end(), 0.0f);
        m[at] = bad;  // the state overflows only after some steps
        for (int step = 0; step < 3; ++step) {
          loops_.momentum(&out[0], &w[0], &m[0], &m[0], n, Momentum(true));
        }
        EXPECT_FALSE(loops_.momentum(&out[0], &w[0], &m[0], &g[0], n, Momentum(true))) << at;
        w[at] = bad;
        EXPECT_FALSE(loops_.write_scaled(&out[0], &w[0], 2.0f, n)) << at;
        w[at] = bad * 2.0f;
        EXPECT_FALSE(loops_.momentum(&out[0], &w[0], nullptr, &g[0], n, Momentum(false))) << at;
        w[at] = 1.0f;
      }
    }
  }
}

TEST_P(LoopsTest, MagnitudesAreHeldAgainstALimit) {
  const float inf = std::numeric_limits<float>::infinity();
  for (int64_t n : {1, 7, 16, 33}) {
    for (int64_t at = 0; at < n; ++at) {
      std::vector<float> x(n, -1.0f);
      for (const float limit : {2.0f, 1e18f, inf}) {
        EXPECT_TRUE(loops_.all_below(x.data(), limit, n));
        for (const float sign : {1.0f, -1.0f}) {
          x[at] = sign * limit;
          EXPECT_FALSE(loops_.all_below(x.data(), limit, n)) << limit << " at " << at;
          x[at] = sign * std::nextafter(limit, 0.0f);
          EXPECT_TRUE(loops_.all_below(x.data(), limit, n)) << limit << " at " << at;
        }
        x[at] = std::numeric_limits<float>::quiet_NaN();
        EXPECT_FALSE(loops_.all_below(x.data(), limit, n));
        x[at] = -1.0f;
      }
    }
  }
}

TEST_P(LoopsTest, LongOutputsElsewhereHaveTheBitsOfThoseInPlace) {
  constexpr int64_t kSize = (int64_t{1} << 18) + 37;
  const MomentumFactors momentum = Momentum(/*nesterov=*/false);
  const std::vector<float> g = Random(kSize, 8), w = Random(kSize, 9);
  for (int64_t shift : {0, 1, 15}) {
    std::vector<float> in_place = w, m = Random(kSize, 5), v = Random(kSize, 6, 0.0f);
    loops_.adamw(&in_place[0], &in_place[0], &m[0], &v[0], &g[0], kSize, kAdamW);
    loops_.momentum(&in_place[0], &in_place[0], &m[0], &g[0], kSize, momentum);
    loops_.scale(&in_place[0], &in_place[0], 0.7f, kSize);

    std::vector<float> m2 = Random(kSize, 5), v2 = Random(kSize, 6, 0.0f);
    std::vector<float> first(kSize + 32, 7.0f), second = first, third = first;
    loops_.adamw(&first[shift], &w[0], &m2[0], &v2[0], &g[0], kSize, kAdamW);
    loops_.momentum(&second[shift], &first[shift], &m2[0], &g[0], kSize, momentum);
    loops_.write_scaled(&third[shift], &second[shift], 0.7f, kSize);
    EXPECT_EQ(std::vector<float>(third.begin() + shift, third.begin() + shift + kSize), in_place);
    EXPECT_EQ(m2, m);
    EXPECT_EQ(v2, v);
    for (const std::vector<float>* out : {&first, &second, &third}) {
      for (int64_t i = 0; i < 32; ++i) {
        EXPECT_EQ((*out)[i < shift ? i : kSize + i], 7.0f) << "written outside, shift=" << shift;
      }
    }
  }
}

TEST_P(LoopsTest, CopiesPastTheCachesWhateverTheAddressAndLength) {
  const std::vector<float> x = Random(200, 9);
  for (const int64_t n : {0, 1, 3, 4, 15, 16, 17, 31, 33, 160}) {
    for (int64_t shift = 0; shift < 17; ++shift) {
      std::vector<float> out(shift + n + 1, 7.0f);
      loops_.copy_past_caches(&out[shift], x.data(), n);
      EXPECT_TRUE(std::equal(x.begin(), x.begin() + n, out.begin() + shift)) << n << " " << shift;
      EXPECT_EQ(out.back(), 7.0f);
      EXPECT_EQ(std::count(out.begin(), out.begin() + shift, 7.0f), shift);
    }
  }
}

TEST_P(LoopsTest, DifferencesPastTheCachesHaveTheBitsOfTheirSteps) {
  const std::vector<float> x = Random(200, 9);
  const std::vector<float> y = Random(200, 10);
  for (const int64_t n : {0, 1, 15, 16, 17, 33, 160}) {
    for (int64_t shift = 0; shift < 17; ++shift) {
      std::vector<float> expected(shift + n + 1, 7.0f);
      loops_.subtract(&expected[shift], x.data(), y.data(), n);
      loops_.scale(&expected[shift], &expected[shift], 0.9f, n);
      std::vector<float> out(shift + n + 1, 7.0f);
      loops_.difference_past_caches(&out[shift], x.data(), y.data(), 0.9f, n);
      EXPECT_EQ(out, expected) << n << " " << shift;
    }
  }
}

TEST_P(LoopsTest, SumOfSquaresIsTheSameOnEverySet) {
  const std::vector<float> x = Random(1003, 7);
  EXPECT_EQ(loops_.sum_of_squares(x.data(), 1003), BestLoops().sum_of_squares(x.data(), 1003));
}

TEST_P(LoopsTest, DotProductIsTheSameOnEverySet) {
  const std::vector<float> x = Random(1003, 7);
  const std::vector<float> y = Random(1003, 8);
  EXPECT_EQ(loops_.dot_product(x.data(), y.data(), 1003),
            BestLoops().dot_product(x.data(), y.data(), 1003));
}

TEST_P(LoopsTest, ProductOfNoDepthIsZero) {
  std::vector<float> pack(kGemmPackElements);
  std::vector<float> c(6, 5.0f);
  const GemmShape shape = {.m = 2, .n = 3, .k = 0, .lda = 1, .ldb = 3, .ldc = 3};
  loops_.gemm(shape, 1.0f, nullptr, nullptr, c.data(), true, pack.data());
  EXPECT_EQ(c, std::vector<float>(6, 5.0f));
  loops_.gemm(shape, 1.0f, nullptr, nullptr, c.data(), false, pack.data());
  EXPECT_EQ(c, std::vector<float>(6, 0.0f));
}

TEST_P(LoopsTest, ProductsOfEveryEdgeSize) {
  std::vector<float> pack(kGemmPackElements);
  for (int64_t m : {1, 5, 6, 7, 12, 13, 97}) {
    for (int64_t n : {1, 15, 16, 17, 33, 48, 65, 130}) {
      for (int64_t k : {1, 17, 200}) {
        for (int flags = 0; flags < 4; ++flags) {
          const bool ta = (flags & 1) != 0, tb = (flags & 2) != 0;
          const GemmShape shape = {.transpose_a = ta,
                                   .transpose_b = tb,
                                   .m = m,
                                   .n = n,
                                   .k = k,
                                   .lda = ta ? m : k,
                                   .ldb = tb ? k : n,
                                   .ldc = n + 1};
          // All numbers are small integers, so every sum is exact, whatever its order.
          std::vector<float> a(m * k), b(k * n), c(m * (n + 1), 0.5f);
          for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i * 7 % 11) - 5.0f;
          for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i * 5 % 13) - 6.0f;
          loops_.gemm(shape, 1.0f, a.data(), b.data(), c.data(), false, pack.data());
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              float want = 0.0f;
              for (int64_t p = 0; p < k; ++p) {
                want += a[ta ? p * m + i : i * k + p] * b[tb ? j * k + p : p * n + j];
              }
              ASSERT_EQ(c[i * (n + 1) + j], want)
                  << "m=" << m << " n=" << n << " k=" << k << " flags=" << flags;
            }
            ASSERT_EQ(c[i * (n + 1) + n], 0.5f) << "written beyond the row";
          }
        }
      }
    }
  }
}

TEST_P(LoopsTest, SquareSumsHaveTheSameBitsOnEverySet) {
  const Loops* narrowest = nullptr;
  for (int i = 0; SupportedLoops(i) != nullptr; ++i) narrowest = SupportedLoops(i);
  for (int64_t n : {1, 17, 64, 1031, 5000}) {
    const std::vector<float> x = Random(n, 21);
    double got = 0.0, plain = 0.0;
    EXPECT_TRUE(loops_.all_below_with_square_sum(x.data(), 2.0f, n, &got));
    EXPECT_TRUE(narrowest->all_below_with_square_sum(x.data(), 2.0f, n, &plain));
    EXPECT_EQ(got, plain) << n;
  }
}

TEST_P(LoopsTest, TrimmedMeanHasTheSameBitsOnEverySet) {
  constexpr int64_t kSize = 135;
  for (int count : {1, 2, 3, 4, 7, 8, 31, 32}) {
    std::vector<std::vector<float>> vectors;
    std::vector<const float*> values;
    std::vector<float> weights;
    for (int i = 0; i < count; ++i) {
      vectors.push_back(Random(kSize, 300 + i));
      weights.push_back(static_cast<float>(1 + i % 3));
    }
    for (const std::vector<float>& vector : vectors) values.push_back(vector.data());
    for (const bool is_weighted : {false, true}) {
      const float* const weights_of = is_weighted ? weights.data() : nullptr;
      const int trim = (count - 1) / 2;
      std::vector<float> got(kSize), plain(kSize);
      loops_.trimmed_mean(&got[0], values.data(), weights_of, count, trim, kSize);
      const Loops* narrowest = nullptr;
      for (int i = 0; SupportedLoops(i) != nullptr; ++i) narrowest = SupportedLoops(i);
      narrowest->trimmed_mean(&plain[0], values.data(), weights_of, count, trim, kSize);
      ASSERT_EQ(got, plain) << count;
      if (count % 2 == 0) continue;
      for (int64_t i = 0; i < kSize; ++i) {
        std::vector<float> of_element;
        for (const float* const vector : values) of_element.push_back(vector[i]);
        std::nth_element(of_element.begin(), of_element.begin() + trim, of_element.end());
        const float median = of_element[trim];
        // With weights, the median is multiplied by its weight and then divided by it, which
        // rounds.
        ASSERT_NEAR(got[i], median, weights_of == nullptr ? 0.0f : 2e-7f) << count;
      }
    }
  }
}

std::vector<const Loops*> AllLoops() {
  std::vector<const Loops*> all;
  for (int i = 0; SupportedLoops(i) != nullptr; ++i) all.push_back(SupportedLoops(i));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sets, LoopsTest, testing::ValuesIn(AllLoops()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace lodestar::simd
