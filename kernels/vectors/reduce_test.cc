// SPDX-License-Identifier: Apache-2.0

#include "kernels/vectors/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace lodestar::vectors {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Random(size_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(generator);
  return values;
}

TEST(ReduceTest, AccumulatesOddSizesAndUnalignedPointers) {
  for (int64_t n : {0, 1, 15, 16, 17, 31, 33, 1000}) {
    for (int64_t offset : {0, 1, 3}) {
      const std::vector<float> x = Random(n + offset, 1);
      std::vector<float> acc = Random(n + offset, 2);
      const std::vector<float> before = acc;
      AccumulateScaled(acc.data() + offset, x.data() + offset, 0.25f, n, kernels::Accumulate::kAdd);
      for (int64_t i = 0; i < n + offset; ++i) {
        const float want = i < offset ? before[i] : before[i] + 0.25f * x[i];
        ASSERT_NEAR(acc[i], want, 2e-7f) << i;  // the error is one rounding
      }
      AccumulateScaled(acc.data() + offset, x.data() + offset, 0.25f, n, kernels::Accumulate::kSet);
      for (int64_t i = offset; i < n + offset; ++i) ASSERT_EQ(acc[i], 0.25f * x[i]) << i;
    }
  }
}

TEST(ReduceTest, SetIgnoresWhatWasThere) {
  std::vector<float> acc(33, kNan);
  const std::vector<float> x = Random(33, 3);
  AccumulateScaled(acc.data(), x.data(), 1.0f, 33, kernels::Accumulate::kSet);
  EXPECT_EQ(acc, x);
}

TEST(ReduceTest, AccumulatesIntoItself) {
  std::vector<float> x = Random(21, 4);
  const std::vector<float> before = x;
  AccumulateScaled(x.data(), x.data(), 1.0f, 21, kernels::Accumulate::kAdd);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], 2.0f * before[i]);
}

TEST(ReduceTest, CuttingAnywhereGivesTheSameBits) {
  constexpr int64_t kSize = 77;
  const std::vector<float> x = Random(kSize, 5);
  const std::vector<float> start = Random(kSize, 6);
  std::vector<float> whole = start;
  AccumulateScaled(whole.data(), x.data(), 0.3f, kSize, kernels::Accumulate::kAdd);
  for (int64_t cut = 0; cut <= kSize; ++cut) {
    std::vector<float> parts = start;
    AccumulateScaled(parts.data(), x.data(), 0.3f, cut, kernels::Accumulate::kAdd);
    AccumulateScaled(parts.data() + cut, x.data() + cut, 0.3f, kSize - cut,
                     kernels::Accumulate::kAdd);
    ASSERT_EQ(parts, whole) << "cut=" << cut;
  }
}

TEST(ReduceTest, SumOfSquaresIsExactEnoughAndRepeats) {
  for (int64_t n : {0, 1, 15, 16, 17, 31, 100003}) {
    const std::vector<float> x = Random(n + 1, 7);
    double want = 0.0;
    for (int64_t i = 0; i < n; ++i) want += double{x[i + 1]} * double{x[i + 1]};
    const double got = SumOfSquares(x.data() + 1, n);
    EXPECT_NEAR(got, want, 1e-12 * want);  // the error of an f64 sum of up to 1e5 terms
    std::vector<float> moved(x.begin() + 1, x.end());
    EXPECT_EQ(SumOfSquares(moved.data(), n), got) << "alignment changed the sum";
  }
}

TEST(ReduceTest, DotProductIsExactEnoughAndRepeats) {
  for (int64_t n : {0, 1, 15, 16, 17, 31, 100003}) {
    const std::vector<float> x = Random(n + 1, 7);
    const std::vector<float> y = Random(n, 9);
    double want = 0.0;
    double size = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      want += double{x[i + 1]} * double{y[i]};
      size += std::abs(double{x[i + 1]} * double{y[i]});
    }
    const double got = DotProduct(x.data() + 1, y.data(), n);
    EXPECT_NEAR(got, want, 1e-12 * size);  // the error of an f64 sum of up to 1e5 terms
    std::vector<float> moved(x.begin() + 1, x.end());
    EXPECT_EQ(DotProduct(moved.data(), y.data(), n), got) << "alignment changed the sum";
    EXPECT_EQ(DotProduct(y.data(), y.data(), n), SumOfSquares(y.data(), n));
  }
}

TEST(ReduceTest, SumOfSquaresDoesNotOverflowInSinglePrecision) {
  const std::vector<float> x(3, 1e30f);
  // The tolerance includes the rounding error of 1e30 as a float, which is up to 2^-24 of its
  // value.
  EXPECT_NEAR(SumOfSquares(x.data(), 3), 3e60, 1e54);
}

TEST(ReduceTest, SquareSumsComeWithTheCheck) {
  for (int64_t n : {0, 1, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 100003}) {
    std::vector<float> x = Random(n + 1, 7);
    double sum = -1.0;
    EXPECT_TRUE(AllBelow(x.data() + 1, 1.5f, n, &sum)) << n;
    const double want = SumOfSquares(x.data() + 1, n);
    EXPECT_NEAR(sum, want, 1e-6 * want) << n;  // sums of 16 squares are in fp32
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      if (n == 0) break;
      for (float bad : {kNan, -kInfinity, 1.5f}) {
        const float saved = std::exchange(x[at + 1], bad);
        EXPECT_FALSE(AllBelow(x.data() + 1, 1.5f, n, &sum)) << n << " " << at;
        x[at + 1] = saved;
      }
    }
  }
  double sum = 0.0;
  const std::vector<float> large(5000, 0.9e18f);
  EXPECT_TRUE(AllBelow(large.data(), 1e18f, 5000, &sum));
  EXPECT_NEAR(sum, 5000 * 0.81e36, 1e34);
}

TEST(ReduceTest, FindsOneNonFiniteAnywhere) {
  for (int64_t n : {1, 16, 17, 63, 20000}) {
    std::vector<float> x = Random(n, 8);
    EXPECT_TRUE(AllFinite(x.data(), n));
    for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
      for (float bad : {kNan, kInfinity, -kInfinity}) {
        const float saved = x[at];
        x[at] = bad;
        EXPECT_FALSE(AllFinite(x.data(), n)) << "n=" << n << " at=" << at;
        std::vector<float> acc(n, 0.0f);
        EXPECT_FALSE(AccumulateScaledCheckingFinite(acc.data(), x.data(), 1.0f, n,
                                                    kernels::Accumulate::kAdd));
        x[at] = saved;
      }
    }
  }
}

TEST(ReduceTest, LargestFloatsAreFinite) {
  const std::vector<float> x(40, std::numeric_limits<float>::max());
  EXPECT_TRUE(AllFinite(x.data(), 40));
  EXPECT_TRUE(AllFinite(x.data(), 0));
}

TEST(ReduceTest, CheckedAccumulationEqualsTheUnchecked) {
  const std::vector<float> x = Random(20001, 9);
  std::vector<float> checked = Random(20001, 10);
  std::vector<float> unchecked = checked;
  EXPECT_TRUE(AccumulateScaledCheckingFinite(checked.data(), x.data(), 0.7f, 20001,
                                             kernels::Accumulate::kAdd));
  AccumulateScaled(unchecked.data(), x.data(), 0.7f, 20001, kernels::Accumulate::kAdd);
  EXPECT_EQ(checked, unchecked);
}

// Computes the trimmed mean of the values of one element in f64.
double TrimmedOracle(std::vector<std::pair<float, float>> values, int trim) {
  std::stable_sort(values.begin(), values.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  double sum = 0.0, total = 0.0;
  for (size_t i = trim; i + trim < values.size(); ++i) {
    sum += double{values[i].first} * double{values[i].second};
    total += double{values[i].second};
  }
  return sum / total;
}

TEST(ReduceTest, TrimmedMeanIsThatOfTheOracle) {
  for (int count = 1; count <= kMaxTrimmedValues; ++count) {
    for (int64_t n : {1, 15, 16, 33, 257}) {
      std::vector<std::vector<float>> vectors;
      std::vector<const float*> values;
      std::vector<float> weights;
      for (int i = 0; i < count; ++i) {
        vectors.push_back(Random(n + 1, 100 + i));
        // One vector in the middle of the list has huge values.
        if (i == count / 2) {
          for (float& value : vectors.back()) value *= 1e18f;
        }
        weights.push_back(static_cast<float>(1 + i * 7 % 5));
      }
      for (const std::vector<float>& vector : vectors) values.push_back(vector.data() + 1);
      for (int trim = 0; 2 * trim < count; ++trim) {
        std::vector<float> equal(n), weighted(n);
        TrimmedMean(equal.data(), values, {}, trim, n);
        TrimmedMean(weighted.data(), values, weights, trim, n);
        for (int64_t i = 0; i < n; ++i) {
          std::vector<std::pair<float, float>> alike, unlike;
          double largest = 0.0;
          for (int k = 0; k < count; ++k) {
            alike.emplace_back(values[k][i], 1.0f);
            unlike.emplace_back(values[k][i], weights[k]);
            if (trim == 0 || std::abs(values[k][i]) < 2.0f) {
              largest = std::max(largest, std::abs(double{values[k][i]}));
            }
          }
          // The tolerance is for a sum of at most 32 terms, each of which is rounded, and a
          // division.
          const double tolerance = 34 * 0x1p-24 * largest;
          ASSERT_NEAR(equal[i], TrimmedOracle(alike, trim), tolerance)
              << "count=" << count << " trim=" << trim << " i=" << i;
          ASSERT_NEAR(weighted[i], TrimmedOracle(unlike, trim), 2 * tolerance)
              << "count=" << count << " trim=" << trim << " i=" << i;
        }
      }
    }
  }
}

TEST(ReduceTest, TrimmedMeanMayBeWrittenOverAnyOfTheValuesAndCutAnywhere) {
  constexpr int64_t kSize = 150;
  std::vector<std::vector<float>> vectors;
  for (int i = 0; i < 5; ++i) vectors.push_back(Random(kSize, 200 + i));
  const std::vector<float> weights = {1, 2, 3, 4, 5};
  const auto at = [](std::vector<std::vector<float>>& of, int64_t begin) {
    std::vector<const float*> values;
    for (const std::vector<float>& vector : of) values.push_back(vector.data() + begin);
    return values;
  };
  std::vector<float> whole(kSize);
  TrimmedMean(whole.data(), at(vectors, 0), weights, 1, kSize);
  for (int target = 0; target < 5; ++target) {
    std::vector<std::vector<float>> own = vectors;
    TrimmedMean(own[target].data(), at(own, 0), weights, 1, kSize);
    EXPECT_EQ(own[target], whole) << target;
  }
  for (int64_t cut : {1, 16, 63, 64, 65, 149}) {
    std::vector<float> parts(kSize);
    TrimmedMean(parts.data(), at(vectors, 0), weights, 1, cut);
    TrimmedMean(parts.data() + cut, at(vectors, cut), weights, 1, kSize - cut);
    EXPECT_EQ(parts, whole) << "cut=" << cut;
  }
}

TEST(ReduceTest, AddsIntoEitherArgument) {
  const std::vector<float> x = {1.0f, -2.0f, 3.5f};
  const std::vector<float> y = {0.25f, 4.0f, -3.5f};
  const std::vector<float> sum = {1.25f, 2.0f, 0.0f};
  std::vector<float> over_x = x;
  std::vector<float> over_y = y;
  Add(over_x.data(), over_x.data(), y.data(), 3);
  Add(over_y.data(), x.data(), over_y.data(), 3);
  EXPECT_EQ(over_x, sum);
  EXPECT_EQ(over_y, sum);
}

TEST(ReduceTest, SubtractsIntoEitherArgument) {
  const std::vector<float> x = Random(35, 11);
  const std::vector<float> y = Random(35, 12);
  std::vector<float> z(35);
  Subtract(z.data(), x.data(), y.data(), 35);
  for (size_t i = 0; i < 35; ++i) ASSERT_EQ(z[i], x[i] - y[i]);
  std::vector<float> over_x = x, over_y = y;
  Subtract(over_x.data(), over_x.data(), y.data(), 35);
  Subtract(over_y.data(), x.data(), over_y.data(), 35);
  EXPECT_EQ(over_x, z);
  EXPECT_EQ(over_y, z);
}

}  // namespace
}  // namespace lodestar::vectors
