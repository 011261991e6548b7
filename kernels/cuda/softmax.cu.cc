// SPDX-License-Identifier: Apache-2.0

// One block computes one row, and reads it twice. The first pass finds the maximum and the sum of
// exponentials. The second pass replaces the row by the gradient, while the row is still in the
// second-level cache.
//
// exp(x - largest) is computed as Power(x) = 2^(x log2(e) - anchor), where anchor is largest *
// log2(e), rounded. This needs one fused multiply-add and one instruction for the power of 2.
// Rounding the anchor multiplies all powers of a row by the same factor. Loss and gradient are
// quotients of powers, so the factor cancels.
//
// Each power also has an error of its own: at most 2 + |1.2 (x - largest)| ulp, and powers below
// 2^-126 are 0. So the error is at most 2.5 ulp of the largest power, in both types.
#include "kernels/cuda/softmax.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda/compiler_seam.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

// Maximum number of threads of a block, which computes one row. A multiprocessor runs two such
// blocks at a time. The rows of all multiprocessors together then stay in the second-level cache
// until they are read again.
constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / kWarpSize;
static_assert(kMaxWarps == kWarpSize, "a warp sums up the warps of a block, one per lane");

constexpr float kLog2E = 1.4426950408889634f;

template <typename T>
struct CrossEntropyCall {
  float* losses;           // [rows]
  int32_t* correct;        // [rows]; null means that they are not counted
  T* logits;               // [rows, row_stride]
  const int32_t* targets;  // [rows]
  uint32_t classes;
  uint32_t row_stride;  // elements from one row to the next
  float scale;
};

// Describes some elements of a row by the largest element and the sum of Power(x,
// AnchorOf(largest)).
struct Summary {
  float largest;  // -inf means that there are no elements, or all are -inf
  float sum;
};

__device__ inline Summary EmptySummary() { return {-INFINITY, 0.0f}; }

// Returns x * log2(e), rounded. An ordinary product would not be rounded if a subtraction follows,
// because nvcc would fuse both.
__device__ inline float InBits(float x) { return __fmul_rn(x, kLog2E); }

// Returns the anchor of a row whose largest element is `largest`. If `largest` is -inf, the anchor
// is 0, because -inf minus -inf would be NaN.
__device__ inline float AnchorOf(float largest) {
  return largest == -INFINITY ? 0.0f : InBits(largest);
}

// Returns the factor that converts a sum of powers from the anchor of `largest` to `anchor`. The
// factor is 0 if `largest` is -inf (empty sum), and exactly 1 if both anchors are equal.
__device__ inline float Shift(float largest, float anchor) {
  return Exp2(InBits(largest) - anchor);
}

__device__ inline float Power(float x, float anchor) { return Exp2(fmaf(x, kLog2E, -anchor)); }

template <int kLanes>
__device__ inline void Include(Summary* summary, const float (&x)[kLanes]) {
  float largest = summary->largest;
#pragma unroll
  for (int k = 0; k < kLanes; ++k) largest = fmaxf(largest, x[k]);
  const float anchor = AnchorOf(largest);
  float sum = summary->sum * Shift(summary->largest, anchor);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) sum += Power(x[k], anchor);
  *summary = {largest, sum};
}

// Returns the summary of the whole warp. Must be called by all 32 lanes, and returns the same value
// to each.
__device__ inline Summary WarpSummary(const Summary& summary) {
  float largest = summary.largest;
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, offset));
  }
  return {largest, WarpSum(summary.sum * Shift(summary.largest, AnchorOf(largest)))};
}

// Returns the summary of the whole block. Must be called by all its threads, and returns the same
// value to each.
__device__ inline Summary BlockSummary(const Summary& summary) {
  __shared__ Summary warps[kMaxWarps];
  const unsigned lane = threadIdx.x % kWarpSize;
  const Summary warp = WarpSummary(summary);
  if (lane == 0) warps[threadIdx.x / kWarpSize] = warp;
  __syncthreads();
  return WarpSummary(lane < blockDim.x / kWarpSize ? warps[lane] : EmptySummary());
}

// Returns the summary of this thread's elements of row x [classes]. Loads the next vector before it
// processes the present one, so that both overlap.
template <int kLanes, typename T>
__device__ inline Summary ThreadSummary(const T* x, uint32_t vectors_end, uint32_t classes) {
  using Vector = Lanes<T, kLanes>;
  Summary summary = EmptySummary();
  const uint32_t step = blockDim.x * kLanes;
  uint32_t i = threadIdx.x * kLanes;
  Vector next = {};
  if (i < vectors_end) next = *reinterpret_cast<const Vector*>(x + i);
  while (i < vectors_end) {
    float values[kLanes];
    Load(values, next.at);
    i += step;
    if (i < vectors_end) next = *reinterpret_cast<const Vector*>(x + i);
    Include(&summary, values);
  }
  for (i = vectors_end + threadIdx.x; i < classes; i += blockDim.x) {
    float value[1];
    Load(value, x + i);
    Include(&summary, value);
  }
  return summary;
}

// Replaces elements [first, first + kLanes) of row x by Power(element, anchor) * factor.
template <int kLanes, typename T>
__device__ inline void StorePowers(T* x, uint32_t first, float anchor, float factor) {
  float values[kLanes];
  Load(values, x + first);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) values[k] = Power(values[k], anchor) * factor;
  Store(x + first, values);
}

// Returns true if one of the first `end` elements of row x equals `value`. Must be called by all
// threads of the block, and returns the same value to each.
template <typename T>
__device__ inline bool IsAmong(float value, const T* x, uint32_t end) {
  int is_among = 0;
  for (uint32_t i = threadIdx.x; i < end; i += blockDim.x) {
    is_among |= ToFloat(x[i]) == value ? 1 : 0;
  }
  return __syncthreads_or(is_among) != 0;
}

template <typename T, int kLanes>
__global__ void __launch_bounds__(kMaxThreads) SoftmaxCrossEntropyKernel(CrossEntropyCall<T> call) {
  const int64_t row = blockIdx.x;
  T* x = call.logits + row * call.row_stride;
  // A negative target becomes a large unsigned number, which is larger than all classes.
  const auto target = static_cast<uint32_t>(call.targets[row]);
  const bool has_target = target < call.classes;
  // Must be read before the barriers of BlockSummary(). After them, other threads overwrite it.
  const float target_logit = has_target ? ToFloat(x[target]) : NAN;
  const uint32_t vectors_end = call.classes / kLanes * kLanes;
  const Summary summary = BlockSummary(ThreadSummary<kLanes>(x, vectors_end, call.classes));
  const float anchor = AnchorOf(summary.largest);
  if (threadIdx.x == 0) {
    // Both terms are at least 0. If the target has the whole probability, both are exactly 0.
    call.losses[row] =
        logf(summary.sum / Power(summary.largest, anchor)) + (summary.largest - target_logit);
  }
  if (call.correct != nullptr) {
    bool is_correct = target_logit == summary.largest;
    if (is_correct) is_correct = !IsAmong(summary.largest, x, target);
    if (threadIdx.x == 0) call.correct[row] = is_correct ? 1 : 0;
  }
  if (call.scale == 0.0f) return;
  const float factor = has_target ? call.scale / summary.sum : NAN;
  for (uint32_t i = threadIdx.x * kLanes; i < vectors_end; i += blockDim.x * kLanes) {
    StorePowers<kLanes>(x, i, anchor, factor);
  }
  for (uint32_t i = vectors_end + threadIdx.x; i < call.row_stride; i += blockDim.x) {
    if (i < call.classes) {
      StorePowers<1>(x, i, anchor, factor);
    } else {
      x[i] = FromFloat<T>(0.0f);
    }
  }
  // The target's element is written a second time, after its thread has written the vector.
  // Searching every vector for the target would take longer.
  __syncthreads();
  if (threadIdx.x == 0 && has_target) {
    x[target] = FromFloat<T>((Power(target_logit, anchor) / summary.sum - 1.0f) * call.scale);
  }
}

// Returns the number of threads per block: one thread per vector of the row, in whole warps.
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
  // The kernel uses 32-bit indices within a row. With this limit they do not overflow, even if
  // every thread goes one step beyond the end of the row.
  if (row_stride > std::numeric_limits<int32_t>::max()) return cudaErrorInvalidValue;
  const CrossEntropyCall<T> call{losses,
                                 correct,
                                 logits,
                                 targets,
                                 static_cast<uint32_t>(classes),
                                 static_cast<uint32_t>(row_stride),
                                 static_cast<float>(scale)};
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
