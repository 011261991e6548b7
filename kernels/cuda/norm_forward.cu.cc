// SPDX-License-Identifier: Apache-2.0

// One warp per row. Rows of up to 2048 elements stay in registers between the passes over them.
// Wider rows are read a second time, from the caches.
#include <cuda_bf16.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr int kWarps = 4;

template <typename T>
struct NormForwardCall {
  T* y;            // [rows, width]
  T* sum;          // [rows, width]
  float* mean;     // [rows]
  float* rstd;     // [rows]
  const T* a;      // [rows, width]
  const T* b;      // [rows, width]; null means no residual
  const T* gamma;  // [width]
  const T* beta;   // [width]
  int64_t rows;
  int64_t width;
};

// Computes sum = a + b, rounds it to T, and stores it in memory and in `kept`.
template <typename T, int kLanes>
__device__ inline void AddResidual(float (&kept)[kLanes], const NormForwardCall<T>& f, int64_t at) {
  Load(kept, f.a + at);
  if (f.b != nullptr) {
    float addend[kLanes];
    Load(addend, f.b + at);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) kept[k] = ToFloat(FromFloat<T>(kept[k] + addend[k]));
  }
  if (f.sum != f.a) Store(f.sum + at, kept);
}

template <typename T, int kLanes>
__device__ inline void StoreNormalised(const NormForwardCall<T>& f, int64_t at, int64_t column,
                                       float (&values)[kLanes], float mean, float rstd) {
  float gamma[kLanes];
  float beta[kLanes];
  Load(gamma, f.gamma + column);
  Load(beta, f.beta + column);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) {
    values[k] = fmaf((values[k] - mean) * rstd, gamma[k], beta[k]);
  }
  Store(f.y + at, values);
}

// Normalises rows that a warp can keep in registers. The width must be a multiple of kLanes, at
// most 32 * kLanes * kVectors.
template <typename T, int kLanes, int kVectors>
__global__ void __launch_bounds__(kWarps* kWarpSize) NormForwardKernel(NormForwardCall<T> f) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= f.rows) return;
  const int64_t begin = row * f.width;
  float kept[kVectors][kLanes];
  float total = 0.0f;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = (v * kWarpSize + lane) * kLanes;
    if (column >= f.width) continue;
    AddResidual(kept[v], f, begin + column);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) total += kept[v][k];
  }
  const float mean = WarpSum(total) / static_cast<float>(f.width);
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if ((v * kWarpSize + lane) * kLanes >= f.width) continue;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      squares = fmaf(kept[v][k] - mean, kept[v][k] - mean, squares);
    }
  }
  const float variance = WarpSum(squares) / static_cast<float>(f.width);
  const float rstd = 1.0f / sqrtf(variance + kEpsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = (v * kWarpSize + lane) * kLanes;
    if (column >= f.width) continue;
    StoreNormalised(f, begin + column, column, kept[v], mean, rstd);
  }
  if (lane == 0) {
    f.mean[row] = mean;
    f.rstd[row] = rstd;
  }
}

// Normalises rows of any width and alignment. A lane reads only those elements of `sum` that it has
// written itself.
template <typename T>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    NormForwardAnyWidthKernel(NormForwardCall<T> f) {
  const int lane = threadIdx.x % kWarpSize;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= f.rows) return;
  const int64_t begin = row * f.width;
  float value[1];
  float total = 0.0f;
  for (int64_t column = lane; column < f.width; column += kWarpSize) {
    AddResidual(value, f, begin + column);
    total += value[0];
  }
  const float mean = WarpSum(total) / static_cast<float>(f.width);
  float squares = 0.0f;
  for (int64_t column = lane; column < f.width; column += kWarpSize) {
    Load(value, f.sum + begin + column);
    squares = fmaf(value[0] - mean, value[0] - mean, squares);
  }
  const float variance = WarpSum(squares) / static_cast<float>(f.width);
  const float rstd = 1.0f / sqrtf(variance + kEpsilon);
  for (int64_t column = lane; column < f.width; column += kWarpSize) {
    Load(value, f.sum + begin + column);
    StoreNormalised(f, begin + column, column, value, mean, rstd);
  }
  if (lane == 0) {
    f.mean[row] = mean;
    f.rstd[row] = rstd;
  }
}

// Numbers of elements of a row that each lane keeps in registers.
constexpr int kFewKept = 8;
constexpr int kSomeKept = 32;
constexpr int kManyKept = 64;

template <typename T, int kKept>
cudaError_t LaunchForward(const NormForwardCall<T>& f, const LaunchConfig& config) {
  return Launch(NormForwardKernel<T, kVectorLanes<T>, kKept / kVectorLanes<T>>, config, f);
}

}  // namespace

template <typename T>
cudaError_t ResidualNormForward(T* y, T* sum, float* mean, float* rstd, const T* a, const T* b,
                                const T* gamma, const T* beta, int64_t rows, int64_t width,
                                cudaStream_t stream) {
  if (rows == 0 || width == 0) return cudaSuccess;
  const NormForwardCall<T> f{y, sum, mean, rstd, a, b, gamma, beta, rows, width};
  const LaunchConfig config{.grid = dim3(static_cast<unsigned>(CeilDiv(rows, kWarps))),
                            .block = dim3(kWarps * kWarpSize),
                            .stream = stream};
  if (width % kVectorLanes<T> == 0 && AreVectorsAligned(y, sum, a, b, gamma, beta)) {
    if (width <= kFewKept * kWarpSize) return LaunchForward<T, kFewKept>(f, config);
    if (width <= kSomeKept * kWarpSize) return LaunchForward<T, kSomeKept>(f, config);
    if (width <= kManyKept * kWarpSize) return LaunchForward<T, kManyKept>(f, config);
  }
  return Launch(NormForwardAnyWidthKernel<T>, config, f);
}

template cudaError_t ResidualNormForward(float*, float*, float*, float*, const float*, const float*,
                                         const float*, const float*, int64_t, int64_t,
                                         cudaStream_t);
template cudaError_t ResidualNormForward(__nv_bfloat16*, __nv_bfloat16*, float*, float*,
                                         const __nv_bfloat16*, const __nv_bfloat16*,
                                         const __nv_bfloat16*, const __nv_bfloat16*, int64_t,
                                         int64_t, cudaStream_t);

}  // namespace lodestar::cuda
