// One block per row, which is read twice: for the maximum and the sum of exponentials together, and
// to overwrite it by the gradient, when it is still in the second-level cache.
#include "kernels/cuda/softmax.h"

#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/fast_math.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

// Two rows of a large vocabulary at a time per multiprocessor: together they stay in the
// second-level cache until they are read again.
constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / kWarpSize;

template <typename T>
struct CrossEntropyCall {
  float* losses;           // [rows]
  int32_t* correct;        // [rows]; null: not wanted
  T* logits;               // [rows, row_stride]
  const int32_t* targets;  // [rows]
  int64_t classes;
  int64_t row_stride;  // elements from a row to the next
  float scale;
};

// Of some elements of a row: the largest, the sum of exp(x - largest), and whether one of them
// comes before the target in the order of size, then index.
struct Summary {
  float largest;
  float sum;
  int beats_target;
};

__device__ inline Summary EmptySummary() { return {-INFINITY, 0.0f, 0}; }

template <typename T>
__device__ inline Summary Combined(const Summary& a, const Summary& b) {
  const float largest = fmaxf(a.largest, b.largest);
  // Both empty: exp(-inf + inf) would be NaN.
  if (largest == -INFINITY) return {largest, a.sum + b.sum, a.beats_target | b.beats_target};
  return {largest, a.sum * ExpFor<T>(a.largest - largest) + b.sum * ExpFor<T>(b.largest - largest),
          a.beats_target | b.beats_target};
}

template <typename T, int kLanes>
__device__ inline void Include(Summary* summary, const float (&x)[kLanes], int64_t first,
                               int64_t target, float target_logit) {
  float largest = summary->largest;
#pragma unroll
  for (int k = 0; k < kLanes; ++k) largest = fmaxf(largest, x[k]);
  if (largest == -INFINITY) return;
  float sum = summary->sum * ExpFor<T>(summary->largest - largest);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) {
    sum += ExpFor<T>(x[k] - largest);
    const bool beats = x[k] > target_logit || (x[k] == target_logit && first + k < target);
    summary->beats_target |= beats ? 1 : 0;
  }
  summary->largest = largest;
  summary->sum = sum;
}

// Every thread gets the summary of the block.
template <typename T>
__device__ inline Summary BlockSummary(Summary summary) {
  __shared__ Summary warps[kMaxWarps];
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const Summary other = {__shfl_xor_sync(kAllLanes, summary.largest, offset),
                           __shfl_xor_sync(kAllLanes, summary.sum, offset),
                           __shfl_xor_sync(kAllLanes, summary.beats_target, offset)};
    summary = Combined<T>(summary, other);
  }
  if (threadIdx.x % kWarpSize == 0) warps[threadIdx.x / kWarpSize] = summary;
  __syncthreads();
  summary = warps[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarpSize; ++warp) {
    summary = Combined<T>(summary, warps[warp]);
  }
  return summary;
}

// The gradient of the elements [first, first + kLanes) of row x.
template <typename T, int kLanes>
__device__ inline void StoreGradient(T* x, int64_t first, int64_t target, float largest,
                                     float factor, float scale) {
  float values[kLanes];
  Load(values, x + first);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) {
    values[k] = ExpFor<T>(values[k] - largest) * factor - (first + k == target ? scale : 0.0f);
  }
  Store(x + first, values);
}

template <typename T, int kLanes>
__global__ void __launch_bounds__(kMaxThreads) SoftmaxCrossEntropyKernel(CrossEntropyCall<T> call) {
  const int64_t row = blockIdx.x;
  T* x = call.logits + row * call.row_stride;
  const int64_t target = call.targets[row];
  const bool has_target = target >= 0 && target < call.classes;
  // Read before the barriers of BlockSummary(), after which other threads overwrite it.
  const float target_logit = has_target ? ToFloat(x[target]) : NAN;
  const int64_t vectors_end = call.classes / kLanes * kLanes;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kLanes;
  Summary summary = EmptySummary();
  for (int64_t i = threadIdx.x * kLanes; i < vectors_end; i += step) {
    float values[kLanes];
    Load(values, x + i);
    Include<T>(&summary, values, i, target, target_logit);
  }
  for (int64_t i = vectors_end + threadIdx.x; i < call.classes; i += blockDim.x) {
    float value[1];
    Load(value, x + i);
    Include<T>(&summary, value, i, target, target_logit);
  }
  summary = BlockSummary<T>(summary);
  if (threadIdx.x == 0) {
    call.losses[row] = summary.largest + logf(summary.sum) - target_logit;
    if (call.correct != nullptr) {
      call.correct[row] = target_logit == summary.largest && summary.beats_target == 0 ? 1 : 0;
    }
  }
  if (call.scale == 0.0f) return;
  const float factor = has_target ? call.scale / summary.sum : NAN;
  for (int64_t i = threadIdx.x * kLanes; i < vectors_end; i += step) {
    StoreGradient<T, kLanes>(x, i, target, summary.largest, factor, call.scale);
  }
  for (int64_t i = vectors_end + threadIdx.x; i < call.row_stride; i += blockDim.x) {
    if (i < call.classes) {
      StoreGradient<T, 1>(x, i, target, summary.largest, factor, call.scale);
    } else {
      x[i] = FromFloat<T>(0.0f);
    }
  }
}

// One vector per thread, in whole warps.
unsigned NumThreads(int64_t classes, int lanes) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(CeilDiv(classes, int64_t{lanes} * kWarpSize), 1, kMaxWarps) * kWarpSize);
}

template <typename T, int kLanes>
cudaError_t LaunchCrossEntropy(const CrossEntropyCall<T>& call, int64_t rows, cudaStream_t stream) {
  const LaunchConfig config{.grid = dim3(static_cast<unsigned>(rows)),
                            .block = dim3(NumThreads(call.classes, kLanes)),
                            .stream = stream};
  return Launch(SoftmaxCrossEntropyKernel<T, kLanes>, config, call);
}

}  // namespace

template <typename T>
cudaError_t SoftmaxCrossEntropy(float* losses, int32_t* correct, T* logits, const int32_t* targets,
                                int64_t rows, int64_t classes, int64_t row_stride, double scale,
                                cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  const CrossEntropyCall<T> call{
      losses, correct, logits, targets, classes, row_stride, static_cast<float>(scale)};
  if (row_stride % kVectorLanes<T> == 0 && AreVectorsAligned(logits)) {
    return LaunchCrossEntropy<T, kVectorLanes<T>>(call, rows, stream);
  }
  return LaunchCrossEntropy<T, 1>(call, rows, stream);
}

template cudaError_t SoftmaxCrossEntropy(float*, int32_t*, float*, const int32_t*, int64_t, int64_t,
                                         int64_t, double, cudaStream_t);
template cudaError_t SoftmaxCrossEntropy(float*, int32_t*, __nv_bfloat16*, const int32_t*, int64_t,
                                         int64_t, int64_t, double, cudaStream_t);

}  // namespace lodestar::cuda
