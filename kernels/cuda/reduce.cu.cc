// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/reduce.h"

#include <algorithm>

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;

// Maximum number of blocks. 1024 blocks of 256 threads are enough for 128 multiprocessors, and few
// enough that one block can add up their sums.
constexpr int64_t kMaxSumBlocks = 1024;
constexpr int64_t kElementsPerSumBlock = kThreads * 16;

int64_t NumSumBlocks(int64_t n) {
  return std::clamp<int64_t>(CeilDiv(n, kElementsPerSumBlock), 1, kMaxSumBlocks);
}

// The square of a float is exact in fp64.
template <int kLanes>
__device__ inline double SquareSum(const float (&values)[kLanes]) {
  double sum = 0.0;
#pragma unroll
  for (int k = 0; k < kLanes; ++k) sum = fma(double{values[k]}, double{values[k]}, sum);
  return sum;
}

// block_sums is [blocks], x is [n].
template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    PartialSumsOfSquaresKernel(double* block_sums, const float* x, int64_t n) {
  const int64_t vectors = n / kLanes;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  double sum = 0.0;
#pragma unroll 4
  for (int64_t i = GlobalThread(); i < vectors; i += stride) {
    float values[kLanes];
    Load(values, x + i * kLanes);
    sum += SquareSum(values);
  }
  const int64_t rest = vectors * kLanes + GlobalThread();
  if (rest < n) {
    float value[1];
    Load(value, x + rest);
    sum += SquareSum(value);
  }
  sum = BlockSum<kThreads>(sum);
  if (threadIdx.x == 0) block_sums[blockIdx.x] = sum;
}

// total is [1], block_sums is [blocks].
__global__ void __launch_bounds__(kThreads)
    TotalOfSquaresKernel(double* total, const double* block_sums, int64_t blocks) {
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < blocks; i += kThreads) sum += block_sums[i];
  sum = BlockSum<kThreads>(sum);
  if (threadIdx.x == 0) *total = sum;
}

template <typename T>
struct StoredElements {
  const T* x;  // [rows, columns]

  template <int kLanes>
  __device__ void Take(float (&values)[kLanes], int64_t i) const {
    Load(values, x + i);
  }
};

constexpr int64_t kColumnsPerPart = kThreads * 16;
constexpr int64_t kMaxRowParts = 128;

int64_t NumRowParts(int64_t columns) {
  return std::clamp<int64_t>(CeilDiv(columns, kColumnsPerPart), 1, kMaxRowParts);
}

// Block (x, y) adds up part x of row y. Shapes: partials [parts, rows], x [rows, columns].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    PartialRowSumsKernel(float* partials, const T* x, int64_t columns) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  float sum = 0.0f;
#pragma unroll 4
  for (int64_t i = GlobalThread(); i < columns; i += stride) {
    sum += ToFloat(x[blockIdx.y * columns + i]);
  }
  sum = BlockSum<kThreads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.x * gridDim.y + blockIdx.y] = sum;
}

// Blocks (x, 0) compute columns of `first`, and blocks (x, 1) columns of `second`. Shapes: first,
// second [columns]; partials [parts, stride]. Each row of `partials` has `columns` partial sums for
// `first`, then as many for `second`.
__global__ void __launch_bounds__(kThreads)
    CombinePartialsKernel(float* first, float* second, const float* partials, int64_t parts,
                          int64_t stride, int64_t columns, bool add) {
  __shared__ float sums[kWarps][kWarpSize];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
  const float* from = partials + blockIdx.y * columns;
  float* out = blockIdx.y == 0 ? first : second;
  float sum = 0.0f;
  if (column < columns) {
    for (int64_t part = threadIdx.y; part < parts; part += kWarps) {
      sum += from[part * stride + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int warp = 1; warp < kWarps; ++warp) sum += sums[warp][threadIdx.x];
  out[column] = add ? out[column] + sum : sum;
}

LaunchConfig CombineConfig(int64_t columns, unsigned outputs, cudaStream_t stream) {
  return {.grid = dim3(static_cast<unsigned>(CeilDiv(columns, kWarpSize)), outputs),
          .block = dim3(kWarpSize, kWarps),
          .stream = stream};
}

}  // namespace

size_t SumOfSquaresWorkspaceBytes(int64_t n) { return NumSumBlocks(n) * sizeof(double); }

cudaError_t SumOfSquares(double* sum, const float* x, int64_t n, void* workspace,
                         cudaStream_t stream) {
  double* block_sums = static_cast<double*>(workspace);
  const int64_t blocks = NumSumBlocks(n);
  const LaunchConfig config{
      .grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kThreads), .stream = stream};
  const cudaError_t error =
      AreVectorsAligned(x)
          ? Launch(PartialSumsOfSquaresKernel<kVectorLanes<float>>, config, block_sums, x, n)
          : Launch(PartialSumsOfSquaresKernel<1>, config, block_sums, x, n);
  if (error != cudaSuccess) return error;
  const LaunchConfig one_block{.grid = dim3(1), .block = dim3(kThreads), .stream = stream};
  return Launch(TotalOfSquaresKernel, one_block, sum, block_sums, blocks);
}

size_t ColumnSumsWorkspaceBytes(int64_t rows, int64_t columns) {
  return NumColumnSumParts(rows) * columns * sizeof(float);
}

template <typename T>
cudaError_t ColumnSums(float* out, const T* x, int64_t rows, int64_t columns, bool add,
                       void* workspace, cudaStream_t stream) {
  if (columns == 0) return cudaSuccess;
  float* partials = static_cast<float*>(workspace);
  if (rows > 0) {
    constexpr int kLanes = kVectorLanes<T>;
    const cudaError_t error =
        columns % kLanes == 0 && AreVectorsAligned(x)
            ? PartialColumnSums<kLanes>(partials, StoredElements<T>{x}, rows, columns, stream)
            : PartialColumnSums<1>(partials, StoredElements<T>{x}, rows, columns, stream);
    if (error != cudaSuccess) return error;
  }
  return out == nullptr ? cudaSuccess
                        : CombineColumnSums(out, rows, columns, add, workspace, stream);
}

cudaError_t CombineColumnSums(float* out, int64_t rows, int64_t columns, bool add,
                              const void* workspace, cudaStream_t stream) {
  if (columns == 0) return cudaSuccess;
  return CombinePartials(out, static_cast<const float*>(workspace), NumColumnSumParts(rows),
                         columns, add, stream);
}

size_t RowSumsWorkspaceBytes(int64_t rows, int64_t columns) {
  return NumRowParts(columns) * rows * sizeof(float);
}

template <typename T>
cudaError_t RowSums(float* out, const T* x, int64_t rows, int64_t columns, bool add,
                    void* workspace, cudaStream_t stream) {
  float* partials = static_cast<float*>(workspace);
  const int64_t parts = NumRowParts(columns);
  const LaunchConfig config{.grid = dim3(static_cast<unsigned>(parts), static_cast<unsigned>(rows)),
                            .block = dim3(kThreads),
                            .stream = stream};
  const cudaError_t error = Launch(PartialRowSumsKernel<T>, config, partials, x, columns);
  if (error != cudaSuccess) return error;
  return CombinePartials(out, partials, parts, rows, add, stream);
}

cudaError_t CombinePartials(float* out, const float* partials, int64_t parts, int64_t columns,
                            bool add, cudaStream_t stream) {
  return Launch(CombinePartialsKernel, CombineConfig(columns, 1, stream), out, nullptr, partials,
                parts, columns, columns, add);
}

cudaError_t CombinePartialPairs(float* first, float* second, const float* partials, int64_t parts,
                                int64_t columns, bool add, cudaStream_t stream) {
  return Launch(CombinePartialsKernel, CombineConfig(columns, 2, stream), first, second, partials,
                parts, 2 * columns, columns, add);
}

template cudaError_t ColumnSums(float*, const float*, int64_t, int64_t, bool, void*, cudaStream_t);
template cudaError_t ColumnSums(float*, const __nv_bfloat16*, int64_t, int64_t, bool, void*,
                                cudaStream_t);
template cudaError_t RowSums(float*, const float*, int64_t, int64_t, bool, void*, cudaStream_t);
template cudaError_t RowSums(float*, const __nv_bfloat16*, int64_t, int64_t, bool, void*,
                             cudaStream_t);

}  // namespace lodestar::cuda
