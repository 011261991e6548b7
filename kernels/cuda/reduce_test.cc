// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/reduce.h"

#include <array>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_test_rig.h"

namespace lodestar::cuda {
namespace {

// All terms are below 1. The error of an fp32 sum of n such terms is about sqrt(n) units in the
// last place.
float Tolerance(int64_t terms) { return 8.0f * std::sqrt(static_cast<float>(terms)) * 0x1p-24f; }

// Vectors with an offset of 1 are not aligned.
constexpr std::array<int64_t, 2> kOffsets = {0, 1};

TEST(ReduceTest, SumsSquaresOfVectorsOfAnySizeAndAlignment) {
  for (int64_t n : {0, 1, 5, 4096, 4099, 70001}) {
    for (int64_t offset : kOffsets) {
      const std::vector<float> x = Noises<float>(offset + n);
      const std::vector<double> sum = InBothOrders([&](KernelTestRig& rig) {
        double* result = rig.Allocate<double>(1);
        EXPECT_EQ(SumOfSquares(result, rig.Upload(x) + offset, n,
                               rig.Allocate<char>(SumOfSquaresWorkspaceBytes(n)), rig.stream()),
                  cudaSuccess);
        return rig.Download(result, 1);
      });
      double want = 0.0;
      for (int64_t i = 0; i < n; ++i) want += double{x[offset + i]} * double{x[offset + i]};
      EXPECT_NEAR(sum[0], want, 1e-12 * want) << "n=" << n;
    }
  }
}

template <typename T>
void ExpectColumnSums(int64_t rows, int64_t columns, int64_t offset, bool add) {
  const std::vector<T> x = Noises<T>(offset + rows * columns);
  const std::vector<float> before(columns, 0.5f);
  const std::vector<float> sums = InBothOrders([&](KernelTestRig& rig) {
    float* out = rig.Upload(before);
    EXPECT_EQ(ColumnSums(out, rig.Upload(x) + offset, rows, columns, add,
                         rig.Allocate<char>(ColumnSumsWorkspaceBytes(rows, columns)), rig.stream()),
              cudaSuccess);
    return rig.Download(out, columns);
  });
  for (int64_t c = 0; c < columns; ++c) {
    double want = add ? 0.5 : 0.0;
    for (int64_t r = 0; r < rows; ++r) want += AsFloat(x[offset + r * columns + c]);
    ASSERT_NEAR(sums[c], want, Tolerance(rows + 1)) << rows << " x " << columns << ", " << c;
  }
}

template <typename T>
void ExpectRowSums(int64_t rows, int64_t columns, bool add) {
  const std::vector<T> x = Noises<T>(rows * columns);
  const std::vector<float> before(rows, 0.5f);
  const std::vector<float> sums = InBothOrders([&](KernelTestRig& rig) {
    float* out = rig.Upload(before);
    EXPECT_EQ(RowSums(out, rig.Upload(x), rows, columns, add,
                      rig.Allocate<char>(RowSumsWorkspaceBytes(rows, columns)), rig.stream()),
              cudaSuccess);
    return rig.Download(out, rows);
  });
  for (int64_t r = 0; r < rows; ++r) {
    double want = add ? 0.5 : 0.0;
    for (int64_t c = 0; c < columns; ++c) want += AsFloat(x[r * columns + c]);
    ASSERT_NEAR(sums[r], want, Tolerance(columns + 1)) << rows << " x " << columns << ", " << r;
  }
}

// With 8200 rows, a part has more than 64 rows, which is the minimum for column sums.
constexpr std::array<std::array<int64_t, 2>, 8> kShapes = {
    {{1, 1}, {0, 40}, {1, 1000}, {63, 33}, {65, 64}, {200, 256}, {8200, 8}, {3, 9000}}};

TEST(ReduceTest, SumsColumns) {
  for (const auto& [rows, columns] : kShapes) {
    for (int64_t offset : kOffsets) {
      ExpectColumnSums<float>(rows, columns, offset, offset == 0);
      ExpectColumnSums<__nv_bfloat16>(rows, columns, offset, offset != 0);
    }
  }
}

TEST(ReduceTest, SumsRows) {
  for (const auto& [rows, columns] : kShapes) {
    if (rows > 200) continue;
    ExpectRowSums<float>(rows, columns, true);
    ExpectRowSums<__nv_bfloat16>(rows, columns, false);
  }
}

}  // namespace
}  // namespace lodestar::cuda
