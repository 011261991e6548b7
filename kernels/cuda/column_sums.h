// SPDX-License-Identifier: Apache-2.0

// The first stage of column sums. The rows of a matrix are divided into parts, and each part gets
// its own sums. A functor returns the elements of the matrix. For .cu.cc files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {

// A block of 32 x 8 threads adds up one part (range of rows). A thread adds up kLanes columns in
// every eighth row. threadIdx.x says which columns, and threadIdx.y says which rows.
inline constexpr int kColumnSumWarps = 8;
inline constexpr int64_t kMaxColumnSumParts = 128;

inline constexpr int64_t RowsPerColumnSumPart(int64_t rows) {
  constexpr int64_t kFewest = 8 * kColumnSumWarps;
  const int64_t even = CeilDiv(CeilDiv(rows, kMaxColumnSumParts), kColumnSumWarps);
  return even * kColumnSumWarps > kFewest ? even * kColumnSumWarps : kFewest;
}
inline constexpr int64_t NumColumnSumParts(int64_t rows) {
  return CeilDiv(rows, RowsPerColumnSumPart(rows));
}

// `partials` is [parts, columns]. For `elements` see PartialColumnSums().
template <int kLanes, typename Elements>
__global__ void __launch_bounds__(kColumnSumWarps* kWarpSize)
    PartialColumnSumsKernel(float* partials, Elements elements, int64_t rows, int64_t columns,
                            int64_t rows_per_part) {
  __shared__ float sums[kColumnSumWarps][kLanes][kWarpSize];
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarpSize + threadIdx.x) * kLanes;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * rows_per_part;
  const int64_t end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
  float sum[kLanes] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kColumnSumWarps) {
      float values[kLanes];
      elements.Take(values, row * columns + column);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) sum[k] += values[k];
    }
  }
#pragma unroll
  for (int k = 0; k < kLanes; ++k) sums[threadIdx.y][k][threadIdx.x] = sum[k];
  __syncthreads();
  const int k = threadIdx.y;
  if (k >= kLanes || column >= columns) return;
  float total = sums[0][k][threadIdx.x];
  for (int warp = 1; warp < kColumnSumWarps; ++warp) total += sums[warp][k][threadIdx.x];
  partials[static_cast<int64_t>(blockIdx.y) * columns + column + k] = total;
}

// Queues a kernel that sets partials [NumColumnSumParts(rows), columns] to the column sums of each
// part. The device function elements.Take(values, i) must set `values` to elements [i, i + kLanes)
// of the matrix, in fp32. `columns` must be a multiple of kLanes.
template <int kLanes, typename Elements>
cudaError_t PartialColumnSums(float* partials, const Elements& elements, int64_t rows,
                              int64_t columns, cudaStream_t stream) {
  static_assert(kLanes <= kColumnSumWarps);
  const LaunchConfig config{
      .grid = dim3(static_cast<unsigned>(CeilDiv(columns, int64_t{kWarpSize} * kLanes)),
                   static_cast<unsigned>(NumColumnSumParts(rows))),
      .block = dim3(kWarpSize, kColumnSumWarps),
      .stream = stream};
  return Launch(PartialColumnSumsKernel<kLanes, Elements>, config, partials, elements, rows,
                columns, RowsPerColumnSumPart(rows));
}

}  // namespace lodestar::cuda
