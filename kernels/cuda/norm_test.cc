// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/norm.h"

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_test_rig.h"

namespace lodestar::cuda {
namespace {

// The widths are just below and just above each number of elements that lanes can keep. The numbers
// of rows are below and above the number that a block handles at once. In some cases one team of
// warps has one row more than the other teams.
constexpr std::array<std::array<int64_t, 2>, 17> kShapes = {{{1, 1},
                                                             {9, 33},
                                                             {5, 256},
                                                             {3, 264},
                                                             {17, 768},
                                                             {3, 1024},
                                                             {2, 1032},
                                                             {19, 1280},
                                                             {17, 1600},
                                                             {3, 2044},
                                                             {3, 2048},
                                                             {2, 2056},
                                                             {10, 2560},
                                                             {1, 4088},
                                                             {9, 4096},
                                                             {2, 4104},
                                                             {1, 5001}}};
// Allowed error, as a multiple of kUnit<T>, which is the largest relative rounding error.
// Normalised values and sums of two inputs are up to 2.
constexpr float kUnits = 16.0f;

template <typename T>
struct Inputs {
  Inputs(int64_t rows, int64_t width)
      : a(Noises<T>(rows * width, 1)),
        b(Noises<T>(rows * width, 2)),
        gamma(Noises<T>(width, 3)),
        beta(Noises<T>(width, 4)),
        dy(Noises<T>(rows * width, 5)) {}
  std::vector<T> a, b, gamma, beta, dy;
};

// Returns y, sum, mean and rstd, converted to fp32.
template <typename T>
std::vector<float> RunForward(const Inputs<T>& in, int64_t rows, int64_t width) {
  return InBothOrders([&](KernelTestRig& rig) {
    T* y = rig.Allocate<T>(rows * width);
    T* sum = rig.Allocate<T>(rows * width);
    float* mean = rig.Allocate<float>(rows);
    float* rstd = rig.Allocate<float>(rows);
    EXPECT_EQ(
        ResidualNormForward(y, sum, mean, rstd, rig.Upload(in.a), rig.Upload(in.b),
                            rig.Upload(in.gamma), rig.Upload(in.beta), rows, width, rig.stream()),
        cudaSuccess);
    std::vector<float> result;
    for (T value : rig.Download(y, rows * width)) result.push_back(AsFloat(value));
    for (T value : rig.Download(sum, rows * width)) result.push_back(AsFloat(value));
    for (float value : rig.Download(mean, rows)) result.push_back(value);
    for (float value : rig.Download(rstd, rows)) result.push_back(value);
    return result;
  });
}

template <typename T>
void ExpectForward(int64_t rows, int64_t width) {
  const Inputs<T> in(rows, width);
  const std::vector<float> got = RunForward(in, rows, width);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> sum(width);
    double mean = 0.0;
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = row * width + i;
      const float exact = AsFloat(in.a[at]) + AsFloat(in.b[at]);
      sum[i] = AsFloat(RoundedTo<T>(exact));
      ASSERT_EQ(got[rows * width + at], sum[i]);
      mean += sum[i] / static_cast<double>(width);
    }
    double variance = 0.0;
    for (double x : sum) variance += (x - mean) * (x - mean) / static_cast<double>(width);
    const double rstd = 1.0 / std::sqrt(variance + 1e-5);
    EXPECT_NEAR(got[2 * rows * width + row], mean, 1e-6);
    EXPECT_NEAR(got[2 * rows * width + rows + row], rstd, 2e-6 * rstd);
    for (int64_t i = 0; i < width; ++i) {
      const double want = (sum[i] - mean) * rstd * AsFloat(in.gamma[i]) + AsFloat(in.beta[i]);
      ASSERT_NEAR(got[row * width + i], want, kUnits * kUnit<T>)
          << rows << " x " << width << ", row " << row << ", " << i;
    }
  }
}

template <typename T>
void ExpectBackward(int64_t rows, int64_t width, bool add) {
  const Inputs<T> in(rows, width);
  std::vector<float> mean(rows, 0.125f);
  std::vector<float> rstd(rows, 1.5f);
  const std::vector<float> weights_before(width, 0.25f);
  const std::vector<float> got = InBothOrders([&](KernelTestRig& rig) {
    T* dx = rig.Upload(in.b);
    float* dgamma = rig.Upload(weights_before);
    float* dbeta = rig.Upload(weights_before);
    EXPECT_EQ(
        NormBackward(dx, dgamma, dbeta, rig.Upload(in.dy), rig.Upload(in.a), rig.Upload(mean),
                     rig.Upload(rstd), rig.Upload(in.gamma), rows, width, add, add,
                     rig.Allocate<char>(NormBackwardWorkspaceBytes(rows, width)), rig.stream()),
        cudaSuccess);
    std::vector<float> result;
    for (T value : rig.Download(dx, rows * width)) result.push_back(AsFloat(value));
    for (float value : rig.Download(dgamma, width)) result.push_back(value);
    for (float value : rig.Download(dbeta, width)) result.push_back(value);
    return result;
  });
  std::vector<double> dgamma(width, add ? 0.25 : 0.0);
  std::vector<double> dbeta(width, add ? 0.25 : 0.0);
  for (int64_t row = 0; row < rows; ++row) {
    const auto x_hat = [&](int64_t i) { return (AsFloat(in.a[row * width + i]) - 0.125) * 1.5; };
    const auto dy = [&](int64_t i) { return double{AsFloat(in.dy[row * width + i])}; };
    double mean_g = 0.0;
    double mean_gx = 0.0;
    for (int64_t i = 0; i < width; ++i) {
      dgamma[i] += dy(i) * x_hat(i);
      dbeta[i] += dy(i);
      mean_g += dy(i) * AsFloat(in.gamma[i]) / static_cast<double>(width);
      mean_gx += dy(i) * AsFloat(in.gamma[i]) * x_hat(i) / static_cast<double>(width);
    }
    for (int64_t i = 0; i < width; ++i) {
      const double want = 1.5 * (dy(i) * AsFloat(in.gamma[i]) - mean_g - x_hat(i) * mean_gx) +
                          (add ? AsFloat(in.b[row * width + i]) : 0.0);
      ASSERT_NEAR(got[row * width + i], want, kUnits * kUnit<T>)
          << rows << " x " << width << ", row " << row << ", " << i;
    }
  }
  // Each value is an fp32 sum of rows + 1 terms, each below 2.
  const double tolerance = 16.0 * std::sqrt(static_cast<double>(rows + 1)) * 0x1p-24;
  for (int64_t i = 0; i < width; ++i) {
    ASSERT_NEAR(got[rows * width + i], dgamma[i], tolerance) << rows << " x " << width;
    ASSERT_NEAR(got[(rows + 1) * width + i], dbeta[i], tolerance) << rows << " x " << width;
  }
}

TEST(NormTest, ForwardAtEveryWidthClass) {
  for (const auto& [rows, width] : kShapes) {
    ExpectForward<float>(rows, width);
    ExpectForward<__nv_bfloat16>(rows, width);
  }
}

TEST(NormTest, BackwardAtEveryWidthClass) {
  for (const auto& [rows, width] : kShapes) {
    ExpectBackward<float>(rows, width, true);
    ExpectBackward<float>(rows, width, false);
    ExpectBackward<__nv_bfloat16>(rows, width, true);
  }
}

// There are more rows than the largest grid has warps (256 * 8), so each warp must handle several
// rows.
TEST(NormTest, BackwardTakesRowsInTurns) {
  ExpectBackward<float>(2100, 16, false);
  ExpectBackward<float>(2100, 15, false);
}

// If rows are read once, there are two launches: the kernel, and the sum of its partial sums.
// Otherwise two kernels read all rows, and there are three launches.
TEST(NormTest, BackwardReadsRowsOfUpTo4096ElementsOnce) {
  for (const auto& [width, launches] : {std::pair{1600, 2}, {4096, 2}, {4104, 3}, {1601, 3}}) {
    KernelTestRig rig(emulator::ThreadOrder::kForward);
    const Inputs<__nv_bfloat16> in(1, width);
    const std::vector<float> ones(width, 1.0f);
    const int64_t before = emulator::num_launches();
    EXPECT_EQ(NormBackward(rig.Upload(in.b), rig.Upload(ones), rig.Upload(ones), rig.Upload(in.dy),
                           rig.Upload(in.a), rig.Upload(ones), rig.Upload(ones),
                           rig.Upload(in.gamma), 1, width, false, false,
                           rig.Allocate<char>(NormBackwardWorkspaceBytes(1, width)), rig.stream()),
              cudaSuccess);
    EXPECT_EQ(emulator::num_launches() - before, launches) << width;
  }
}

TEST(NormTest, NoRowsGiveNoGradient) {
  for (bool add : {false, true}) ExpectBackward<float>(0, 64, add);
}

}  // namespace
}  // namespace lodestar::cuda
