// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/attention_dropout.h"
#include "kernels/cuda/attention_float_tile.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/compiler_seam.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/warp.h"

namespace lodestar::cuda {
namespace {

// The part of the result that a thread block computes: one tile of tokens that the block owns, and
// one chunk of a head's columns. For the scores, the block loads all chunks of the inputs in turn.
// It loads its own chunk last, because the product after the scores also reads that chunk from
// shared memory.
struct Place {
  int64_t head;
  int first;  // token of the first owned row
  int chunk;  // number of the chunk of columns of the result
  int chunks;

  template <typename T>
  __device__ explicit Place(const AttentionCall<T>& call, bool longest_last)
      : chunks((call.width + kFloatDepth - 1) / kFloatDepth) {
    const int tiles = (call.tokens + kFloatOwned - 1) / kFloatOwned;
    const int64_t at = blockIdx.x / chunks;
    chunk = static_cast<int>(blockIdx.x - at * chunks);
    head = at / tiles;
    const int tile = static_cast<int>(at - head * tiles);
    first = (longest_last ? tiles - 1 - tile : tile) * kFloatOwned;
  }
  // Returns the first column of the i-th chunk in the order of loading.
  __device__ int Column(int i) const { return (chunk + 1 + i) % chunks * kFloatDepth; }
  __device__ int OwnColumn() const { return chunk * kFloatDepth; }
};

template <typename T>
LaunchConfig Config(const AttentionCall<T>& call, size_t shared_floats, cudaStream_t stream) {
  const int64_t tiles = (call.tokens + kFloatOwned - 1) / kFloatOwned;
  const int64_t chunks = (call.width + kFloatDepth - 1) / kFloatDepth;
  return {.grid = dim3(static_cast<unsigned>(tiles * chunks * call.batch * call.heads)),
          .block = dim3(kFloatThreads),
          .shared_bytes = shared_floats * sizeof(float),
          .stream = stream};
}

// Softmax statistics of this thread's four rows, over the keys that were processed so far.
struct RowState {
  float largest[4];
  float sum[4];  // of exp(score - largest) over this thread's columns
};

// Replaces scaled scores by exp(score - largest), where `largest` is the row's maximum so far. Sets
// correction[i] to the factor by which the caller must multiply earlier results of row i.
__device__ inline void OnlineSoftmax(OwnedByOther& scores, RowState& rows, float (&correction)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float largest = rows.largest[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) largest = fmaxf(largest, scores[i][j]);
    largest = RowMaximumOfEight(largest);
    correction[i] = expf(rows.largest[i] - largest);
    rows.largest[i] = largest;
    rows.sum[i] *= correction[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      scores[i][j] = expf(scores[i][j] - largest);
      rows.sum[i] += scores[i][j];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kFloatThreads)
    FloatAttentionForwardKernel(const AttentionCall<T> call) {
  const Place place(call, true);
  const AttentionHead head(call, place.head);
  const HeadDropout dropout(call, head);
  float* queries = DynamicShared<float>();
  float* keys = queries + kOwnedTile;
  float* values = keys + kOtherTile;
  float* probabilities = values + kOtherTile;
  const T* q = call.qkv + head.query;

  RowState rows;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    rows.largest[i] = -INFINITY;
    rows.sum[i] = 0.0f;
  }
  OwnedByDepth mix;
  SetZero(mix);
  const int end = min(call.tokens, place.first + kFloatOwned);
  for (int first = 0; first < end; first += kFloatOther) {
    OwnedByOther scores;
    SetZero(scores);
    for (int i = 0; i < place.chunks; ++i) {
      __syncthreads();
      if (place.chunks > 1 || first == 0) {
        LoadFloats<kFloatOwned>(queries, q, head.qkv_step, place.first, call.tokens,
                                place.Column(i), call.width);
      }
      LoadFloats<kFloatOther>(keys, q + head.output_step, head.qkv_step, first, call.tokens,
                              place.Column(i), call.width);
      __syncthreads();
      AddScores(scores, queries, keys);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bool seen = first + OtherColumn(j) <= place.first + FloatRow(i);
        scores[i][j] = seen ? scores[i][j] * call.scale : -INFINITY;
      }
    }
    float correction[4];
    OnlineSoftmax(scores, rows, correction);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) mix[i][j] *= correction[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (call.threshold != 0 &&
            !dropout.KeepOne(place.first + FloatRow(i), first + OtherColumn(j))) {
          scores[i][j] = 0.0f;
        }
      }
    }
    LoadFloats<kFloatOther>(values, q + 2 * head.output_step, head.qkv_step, first, call.tokens,
                            place.OwnColumn(), call.width);
    StoreProbabilities(probabilities, scores);
    __syncthreads();
    AddMix(mix, probabilities, values);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float sum = RowSumOfEight(rows.sum[i]);
    const int query = place.first + FloatRow(i);
    if (place.chunk == 0 && threadIdx.x % 8 == 0 && query < call.tokens) {
      call.log_sum_exp[head.row + query] = rows.largest[i] + logf(sum);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) mix[i][j] /= sum;
  }
  StoreFloats(call.y + head.output, head.output_step, place.first, call.tokens, place.OwnColumn(),
              call.width, mix, call.keep_scale);
}

// Replaces the scores in `p` by the probabilities. They are 0 if dropout drops them, and are not
// yet scaled by keep_scale. Replaces dp in `ds` by the gradients of the scores. `row` and `column`
// are the tokens of the tile's first row and first column. The formulas are in
// attention_tensor_backward.cu.cc.
template <bool kKeysOwned, typename T>
__device__ inline void Differentiate(OwnedByOther& p, OwnedByOther& ds,
                                     const AttentionCall<T>& call, const AttentionHead& head,
                                     const HeadDropout& dropout, int row, int column) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = row + FloatRow(i);
      const int c = column + OtherColumn(j);
      const int query = kKeysOwned ? c : r;
      const int key = kKeysOwned ? r : c;
      if (key > query || query >= call.tokens) {
        p[i][j] = 0.0f;
        ds[i][j] = 0.0f;
        continue;
      }
      const float probability = expf(p[i][j] * call.scale - call.log_sum_exp[head.row + query]);
      p[i][j] = probability;
      float dp = ds[i][j];
      if (call.threshold != 0) {
        const bool kept = dropout.KeepOne(query, key);
        dp = kept ? dp * call.keep_scale : 0.0f;
        if (!kept) p[i][j] = 0.0f;
      }
      ds[i][j] = probability * (dp - call.delta[head.row + query]);
    }
  }
}

template <typename T, bool kKeysOwned>
__global__ void __launch_bounds__(kFloatThreads)
    FloatAttentionBackwardKernel(const AttentionCall<T> call) {
  const Place place(call, !kKeysOwned);
  const AttentionHead head(call, place.head);
  const HeadDropout dropout(call, head);
  float* owned0 = DynamicShared<float>();  // keys, or queries if not kKeysOwned
  float* owned1 = owned0 + kOwnedTile;     // values, or dy
  float* other0 = owned1 + kOwnedTile;     // queries, or keys
  float* other1 = other0 + kOtherTile;     // dy, or values
  float* probabilities = other1 + kOtherTile;
  const T* q = call.qkv + head.query;
  const T* k = q + head.output_step;
  const T* v = k + head.output_step;
  const T* dy = call.dy + head.output;

  OwnedByDepth ds_sums;
  OwnedByDepth p_sums;
  SetZero(ds_sums);
  SetZero(p_sums);
  const int begin = kKeysOwned ? place.first : 0;
  const int end = kKeysOwned ? call.tokens : min(call.tokens, place.first + kFloatOwned);
  for (int first = begin; first < end; first += kFloatOther) {
    OwnedByOther p;
    OwnedByOther ds;
    SetZero(p);
    SetZero(ds);
    for (int i = 0; i < place.chunks; ++i) {
      const int column = place.Column(i);
      __syncthreads();
      if (place.chunks > 1 || first == begin) {
        LoadFloats<kFloatOwned>(owned0, kKeysOwned ? k : q, head.qkv_step, place.first, call.tokens,
                                column, call.width);
        LoadFloats<kFloatOwned>(owned1, kKeysOwned ? v : dy,
                                kKeysOwned ? head.qkv_step : head.output_step, place.first,
                                call.tokens, column, call.width);
      }
      LoadFloats<kFloatOther>(other0, kKeysOwned ? q : k, head.qkv_step, first, call.tokens, column,
                              call.width);
      LoadFloats<kFloatOther>(other1, kKeysOwned ? dy : v,
                              kKeysOwned ? head.output_step : head.qkv_step, first, call.tokens,
                              column, call.width);
      __syncthreads();
      AddScores(p, owned0, other0);
      AddScores(ds, owned1, other1);
    }
    Differentiate<kKeysOwned>(p, ds, call, head, dropout, place.first, first);
    if (kKeysOwned) {
      StoreProbabilities(probabilities, p);
      __syncthreads();
      AddMix(p_sums, probabilities, other1);
      __syncthreads();
    }
    StoreProbabilities(probabilities, ds);
    __syncthreads();
    AddMix(ds_sums, probabilities, other0);
  }
  T* out = call.dqkv + head.query;
  StoreFloats(out + (kKeysOwned ? head.output_step : 0), head.qkv_step, place.first, call.tokens,
              place.OwnColumn(), call.width, ds_sums, call.scale);
  if (!kKeysOwned) return;
  StoreFloats(out + 2 * head.output_step, head.qkv_step, place.first, call.tokens,
              place.OwnColumn(), call.width, p_sums, call.keep_scale);
}

// Number of threads per block. Each warp computes `delta` of one query and head.
constexpr int kDeltaThreads = 256;

template <typename T, int kLanes>
__global__ void __launch_bounds__(kDeltaThreads) AttentionDeltaKernel(const AttentionCall<T> call) {
  const int64_t at = GlobalThread() / kWarpSize;  // row of [batch, tokens, heads]
  const int64_t rows = int64_t{1} * call.batch * call.tokens * call.heads;
  if (at >= rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const T* dy = call.dy + at * call.width;
  const T* y = call.y + at * call.width;
  float sum = 0.0f;
  for (int i = lane * kLanes; i < call.width; i += kWarpSize * kLanes) {
    float a[kLanes];
    float b[kLanes];
    Load(a, dy + i);
    Load(b, y + i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) sum += a[k] * b[k];
  }
  sum = WarpSum(sum);
  if (lane != 0) return;
  const int64_t token = at / call.heads;
  const int64_t head = at - token * call.heads;
  const int64_t sample = token / call.tokens;
  call.delta[(sample * call.heads + head) * call.tokens + token - sample * call.tokens] = sum;
}

}  // namespace

template <typename T>
cudaError_t FloatAttentionForward(const AttentionCall<T>& call, cudaStream_t stream) {
  return Launch(FloatAttentionForwardKernel<T>,
                Config(call, kOwnedTile + 2 * kOtherTile + kProbabilityTile, stream), call);
}

template <typename T>
cudaError_t FloatAttentionBackward(const AttentionCall<T>& call, cudaStream_t stream) {
  const LaunchConfig config =
      Config(call, 2 * kOwnedTile + 2 * kOtherTile + kProbabilityTile, stream);
  const cudaError_t error = Launch(FloatAttentionBackwardKernel<T, true>, config, call);
  return error != cudaSuccess ? error
                              : Launch(FloatAttentionBackwardKernel<T, false>, config, call);
}

template <typename T>
cudaError_t AttentionDelta(const AttentionCall<T>& call, cudaStream_t stream) {
  const int64_t rows = int64_t{1} * call.batch * call.tokens * call.heads;
  const LaunchConfig config{
      .grid = dim3(static_cast<unsigned>(CeilDiv(rows * kWarpSize, kDeltaThreads))),
      .block = dim3(kDeltaThreads),
      .stream = stream};
  // If all rows begin at even elements, the kernel reads two elements at once.
  const bool pairs = call.width % 2 == 0 && AreVectorsAligned(call.dy, call.y);
  return pairs ? Launch(AttentionDeltaKernel<T, 2>, config, call)
               : Launch(AttentionDeltaKernel<T, 1>, config, call);
}

template cudaError_t FloatAttentionForward(const AttentionCall<float>&, cudaStream_t);
template cudaError_t FloatAttentionForward(const AttentionCall<__nv_bfloat16>&, cudaStream_t);
template cudaError_t FloatAttentionBackward(const AttentionCall<float>&, cudaStream_t);
template cudaError_t FloatAttentionBackward(const AttentionCall<__nv_bfloat16>&, cudaStream_t);
template cudaError_t AttentionDelta(const AttentionCall<float>&, cudaStream_t);
template cudaError_t AttentionDelta(const AttentionCall<__nv_bfloat16>&, cudaStream_t);

}  // namespace lodestar::cuda
