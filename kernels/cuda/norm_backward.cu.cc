// dx by one warp per row, the sums for dgamma and dbeta in two stages. Rows of up to 1024 elements
// stay in registers between the passes over them; others are read again, from the caches.
#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/compiler_seam.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

constexpr int kWarps = 8;

// Elements of a row that each lane keeps; more would not fit into registers.
constexpr int kFewKept = 8;
constexpr int kSomeKept = 24;
constexpr int kManyKept = 32;
constexpr int BlocksPerMultiprocessor(int kept) { return kept <= kSomeKept ? 2 : 1; }

template <typename T>
struct NormBackwardCall {
  T* dx;              // [rows, width]
  const T* dy;        // [rows, width]
  const T* sum;       // [rows, width]
  const float* mean;  // [rows]
  const float* rstd;  // [rows]
  const T* gamma;     // [width]
  int64_t rows;
  int64_t width;
  bool add_to_dx;
};

// g = dy * gamma; dx = rstd * (g - mean(g) - x_hat * mean(g * x_hat))
template <typename T, int kLanes>
__device__ inline void StoreGradient(const NormBackwardCall<T>& b, int64_t at,
                                     const float (&g)[kLanes], const float (&x_hat)[kLanes],
                                     float rstd, float mean_g, float mean_gx) {
  float dx[kLanes] = {};
  if (b.add_to_dx) Load(dx, b.dx + at);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) {
    dx[k] = fmaf(fmaf(x_hat[k], -mean_gx, g[k] - mean_g), rstd, dx[k]);
  }
  Store(b.dx + at, dx);
}

template <typename T, int kLanes>
__device__ inline void LoadNormalised(float (&x_hat)[kLanes], const T* x, float mean, float rstd) {
  Load(x_hat, x);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) x_hat[k] = (x_hat[k] - mean) * rstd;
}

// dy * gamma, of the columns from `column` on.
template <typename T, int kLanes>
__device__ inline void TimesGamma(float (&g)[kLanes], const NormBackwardCall<T>& b,
                                  int64_t column) {
  float gamma[kLanes];
  Load(gamma, b.gamma + column);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) g[k] *= gamma[k];
}

// What the warps of a block add to the sums over rows: one after the other in shared [2, width]
// (dgamma, dbeta), so that the order is fixed, and from there to partials [blocks, 2, width].
template <int kLanes, int kVectors>
__device__ inline void StoreWeightPartials(float* partials, float* shared,
                                           const float (&dgamma)[kVectors][kLanes],
                                           const float (&dbeta)[kVectors][kLanes], int64_t width) {
  const int lane = threadIdx.x % kWarpSize;
  for (int warp = 0; warp < kWarps; ++warp) {
    if (warp == static_cast<int>(threadIdx.x) / kWarpSize) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        const int64_t column = (v * kWarpSize + lane) * kLanes;
        if (column >= width) continue;
#pragma unroll
        for (int k = 0; k < kLanes; ++k) {
          float* to = shared + column + k;
          to[0] = (warp == 0 ? 0.0f : to[0]) + dgamma[v][k];
          to[width] = (warp == 0 ? 0.0f : to[width]) + dbeta[v][k];
        }
      }
    }
    __syncthreads();
  }
  for (int64_t i = threadIdx.x; i < 2 * width; i += kWarps * kWarpSize) {
    partials[blockIdx.x * 2 * width + i] = shared[i];
  }
}

// Warps take rows in turn and keep their sums for dgamma and dbeta in registers. Width as for
// NormForwardKernel; partials [blocks, 2, width].
template <typename T, int kLanes, int kVectors>
__global__ void __launch_bounds__(kWarps* kWarpSize, BlocksPerMultiprocessor(kLanes* kVectors))
    NormBackwardKernel(NormBackwardCall<T> b, float* partials) {
  const int lane = threadIdx.x % kWarpSize;
  const float inverse_width = 1.0f / static_cast<float>(b.width);
  float dgamma[kVectors][kLanes] = {};
  float dbeta[kVectors][kLanes] = {};
  int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  for (; row < b.rows; row += static_cast<int64_t>(gridDim.x) * kWarps) {
    const int64_t begin = row * b.width;
    const float mean = b.mean[row];
    const float rstd = b.rstd[row];
    Lanes<T, kLanes> dy[kVectors];
    Lanes<T, kLanes> x[kVectors];
    float total_g = 0.0f;
    float total_gx = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = (v * kWarpSize + lane) * kLanes;
      if (column >= b.width) continue;
      dy[v] = *reinterpret_cast<const Lanes<T, kLanes>*>(b.dy + begin + column);
      x[v] = *reinterpret_cast<const Lanes<T, kLanes>*>(b.sum + begin + column);
      float g[kLanes];
      float x_hat[kLanes];
      Load(g, dy[v].at);
      LoadNormalised(x_hat, x[v].at, mean, rstd);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        dgamma[v][k] = fmaf(g[k], x_hat[k], dgamma[v][k]);
        dbeta[v][k] += g[k];
      }
      TimesGamma(g, b, column);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        total_g += g[k];
        total_gx = fmaf(g[k], x_hat[k], total_gx);
      }
    }
    const float mean_g = WarpSum(total_g) * inverse_width;
    const float mean_gx = WarpSum(total_gx) * inverse_width;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int64_t column = (v * kWarpSize + lane) * kLanes;
      if (column >= b.width) continue;
      float g[kLanes];
      float x_hat[kLanes];
      Load(g, dy[v].at);
      LoadNormalised(x_hat, x[v].at, mean, rstd);
      TimesGamma(g, b, column);
      StoreGradient(b, begin + column, g, x_hat, rstd, mean_g, mean_gx);
    }
  }
  StoreWeightPartials(partials, DynamicShared<float>(), dgamma, dbeta, b.width);
}

// Any width and alignment: dx only.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    NormBackwardInputAnyWidthKernel(NormBackwardCall<T> b) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= b.rows) return;
  const int64_t begin = row * b.width;
  const float mean = b.mean[row];
  const float rstd = b.rstd[row];
  float g[1];
  float x_hat[1];
  float total_g = 0.0f;
  float total_gx = 0.0f;
  for (int64_t column = lane; column < b.width; column += kWarpSize) {
    Load(g, b.dy + begin + column);
    TimesGamma(g, b, column);
    LoadNormalised(x_hat, b.sum + begin + column, mean, rstd);
    total_g += g[0];
    total_gx = fmaf(g[0], x_hat[0], total_gx);
  }
  const float inverse_width = 1.0f / static_cast<float>(b.width);
  const float mean_g = WarpSum(total_g) * inverse_width;
  const float mean_gx = WarpSum(total_gx) * inverse_width;
  for (int64_t column = lane; column < b.width; column += kWarpSize) {
    Load(g, b.dy + begin + column);
    TimesGamma(g, b, column);
    LoadNormalised(x_hat, b.sum + begin + column, mean, rstd);
    StoreGradient(b, begin + column, g, x_hat, rstd, mean_g, mean_gx);
  }
}

// Any width and alignment: the sums for dgamma and dbeta over one range of rows, into partials
// [parts, 2, width]. A block of 32 x 8 threads: threadIdx.x owns a column, threadIdx.y every eighth
// row.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    NormBackwardWeightsAnyWidthKernel(NormBackwardCall<T> b, float* partials,
                                      int64_t rows_per_part) {
  __shared__ float sums[2][kWarps][kWarpSize];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * rows_per_part;
  const int64_t end = begin + rows_per_part < b.rows ? begin + rows_per_part : b.rows;
  float dgamma = 0.0f;
  float dbeta = 0.0f;
  if (column < b.width) {
    for (int64_t row = begin + threadIdx.y; row < end; row += kWarps) {
      float dy[1];
      float x_hat[1];
      Load(dy, b.dy + row * b.width + column);
      LoadNormalised(x_hat, b.sum + row * b.width + column, b.mean[row], b.rstd[row]);
      dgamma = fmaf(dy[0], x_hat[0], dgamma);
      dbeta += dy[0];
    }
  }
  sums[0][threadIdx.y][threadIdx.x] = dgamma;
  sums[1][threadIdx.y][threadIdx.x] = dbeta;
  __syncthreads();
  const int which = threadIdx.y;
  if (which >= 2 || column >= b.width) return;
  float total = sums[which][0][threadIdx.x];
  for (int warp = 1; warp < kWarps; ++warp) total += sums[which][warp][threadIdx.x];
  partials[(static_cast<int64_t>(blockIdx.y) * 2 + which) * b.width + column] = total;
}

// Two resident blocks on each of 128 multiprocessors: as many as it takes to fill a large device.
constexpr int64_t kMaxParts = 256;

int64_t RowsPerPart(int64_t rows) {
  return CeilDiv(std::max<int64_t>(1, CeilDiv(rows, kMaxParts)), kWarps) * kWarps;
}
int64_t NumParts(int64_t rows) { return CeilDiv(rows, RowsPerPart(rows)); }

template <typename T, int kKept>
cudaError_t LaunchBackward(const NormBackwardCall<T>& b, float* partials, cudaStream_t stream) {
  const LaunchConfig config{.grid = dim3(static_cast<unsigned>(NumParts(b.rows))),
                            .block = dim3(kWarps * kWarpSize),
                            .shared_bytes = static_cast<size_t>(2 * b.width) * sizeof(float),
                            .stream = stream};
  return Launch(NormBackwardKernel<T, kVectorLanes<T>, kKept / kVectorLanes<T>>, config, b,
                partials);
}

template <typename T>
cudaError_t LaunchAnyBackward(const NormBackwardCall<T>& b, float* partials, cudaStream_t stream) {
  const LaunchConfig rows{.grid = dim3(static_cast<unsigned>(CeilDiv(b.rows, kWarps))),
                          .block = dim3(kWarps * kWarpSize),
                          .stream = stream};
  const cudaError_t error = Launch(NormBackwardInputAnyWidthKernel<T>, rows, b);
  if (error != cudaSuccess) return error;
  const LaunchConfig parts{.grid = dim3(static_cast<unsigned>(CeilDiv(b.width, kWarpSize)),
                                        static_cast<unsigned>(NumParts(b.rows))),
                           .block = dim3(kWarpSize, kWarps),
                           .stream = stream};
  return Launch(NormBackwardWeightsAnyWidthKernel<T>, parts, b, partials, RowsPerPart(b.rows));
}

template <typename T>
cudaError_t QueueBackward(const NormBackwardCall<T>& b, bool are_vectors, float* partials,
                          cudaStream_t stream) {
  if (are_vectors && b.width <= kFewKept * kWarpSize) {
    return LaunchBackward<T, kFewKept>(b, partials, stream);
  }
  if (are_vectors && b.width <= kSomeKept * kWarpSize) {
    return LaunchBackward<T, kSomeKept>(b, partials, stream);
  }
  if (are_vectors && b.width <= kManyKept * kWarpSize) {
    return LaunchBackward<T, kManyKept>(b, partials, stream);
  }
  return LaunchAnyBackward(b, partials, stream);
}

}  // namespace

size_t NormBackwardWorkspaceBytes(int64_t rows, int64_t width) {
  return NumParts(rows) * 2 * width * sizeof(float);
}

template <typename T>
cudaError_t NormBackward(T* dx, float* dgamma, float* dbeta, const T* dy, const T* sum,
                         const float* mean, const float* rstd, const T* gamma, int64_t rows,
                         int64_t width, bool add_to_dx, bool add_to_weights, void* workspace,
                         cudaStream_t stream) {
  if (width == 0) return cudaSuccess;
  float* partials = static_cast<float*>(workspace);
  if (rows > 0) {
    const bool are_vectors = width % kVectorLanes<T> == 0 && AreVectorsAligned(dx, dy, sum, gamma);
    const cudaError_t error =
        QueueBackward(NormBackwardCall<T>{dx, dy, sum, mean, rstd, gamma, rows, width, add_to_dx},
                      are_vectors, partials, stream);
    if (error != cudaSuccess) return error;
  }
  return CombinePartialPairs(dgamma, dbeta, partials, NumParts(rows), width, add_to_weights,
                             stream);
}

template cudaError_t NormBackward(float*, float*, float*, const float*, const float*, const float*,
                                  const float*, const float*, int64_t, int64_t, bool, bool, void*,
                                  cudaStream_t);
template cudaError_t NormBackward(__nv_bfloat16*, float*, float*, const __nv_bfloat16*,
                                  const __nv_bfloat16*, const float*, const float*,
                                  const __nv_bfloat16*, int64_t, int64_t, bool, bool, void*,
                                  cudaStream_t);

}  // namespace lodestar::cuda
