// SPDX-License-Identifier: Apache-2.0

// Forward attention on tensor cores, after FlashAttention-2 (Dao 2023, arXiv:2307.08691). A block
// owns 128 queries of one head and loops over the keys that they see, 64 (or 32) at a time. It
// updates the maximum and the sum of each row after each step. Scores never leave the registers.
#include "kernels/cuda/attention_dropout.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/compiler_seam.h"
#include "kernels/cuda/launch.h"

namespace lodestar::cuda {
namespace {

constexpr int kRowTiles = 2;
constexpr int kQueries = kRowTiles * kRowTileStep;
// Number of keys per step. A larger number is not possible, because the results need the other
// registers.
template <int kWidth>
constexpr int kKeys = kWidth == 64 ? 64 : 32;
constexpr float kLog2E = 1.4426950408889634f;

template <int kWidth>
constexpr size_t SharedBytes() {
  return (kQueries + 2 * kKeys<kWidth>)*kWidth * sizeof(Bf16);
}

template <int kWidth>
using Scores = Accumulator[kRowTiles][kKeys<kWidth> / 8];

// The results of one warp, in registers. Each row tile has 16 rows of the warp. largest[m][h] and
// sum[m][h] are those of row m * 64 + 8 * h + lane / 4, counted from the warp's first row.
template <int kWidth>
struct Rows {
  // Sum of p * v over the keys so far, where p = exp(scale * (score - largest)).
  Accumulator mix[kRowTiles][kWidth / 8];
  float largest[kRowTiles][2];  // largest score of the row so far
  float sum[kRowTiles][2];      // sum of p over the columns of this lane
};

// Computes the scores of row tiles [kFirst, kRowTiles) with a tile of keys.
template <int kWidth, int kFirst>
__device__ __forceinline__ void Multiply(Scores<kWidth>& scores, const LanePlaces<kWidth>& places,
                                         const Bf16* queries, const Bf16* keys, int warp_row) {
#pragma unroll
  for (int m = kFirst; m < kRowTiles; ++m) SetZero(scores[m]);
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int m = kFirst; m < kRowTiles; ++m) {
      LoadLeft(a[m], places, queries, warp_row + m * kRowTileStep, k);
    }
#pragma unroll
    for (int j = 0; j < kKeys<kWidth> / 16; ++j) {
      uint32_t b[4];
      LoadRightTransposed(b, places, keys, j, k);
#pragma unroll
      for (int m = kFirst; m < kRowTiles; ++m) {
        MultiplyAddPair(scores[m][2 * j], scores[m][2 * j + 1], a[m], b);
      }
    }
  }
}

// Sets the scores of keys that come after their query to -inf. `query` is the lane's first row,
// `key` its first column. Keys beyond the last token come after every query.
template <int kCount>
__device__ __forceinline__ void MaskFuture(Accumulator (&scores)[kCount], int query, int key) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (key + 8 * n + e % 2 > query + 8 * (e / 2)) scores[n][e] = -INFINITY;
    }
  }
}

__device__ __forceinline__ float RowMaximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float RowSum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Replaces scores by p = 2^(factor * (score - largest)), where `largest` is the row's maximum so
// far. If the maximum grows, rescales the earlier sums. The maximum is always finite, because the
// first tile has key 0, which all queries see.
template <int kWidth, int kCount>
__device__ __forceinline__ void Softmax(Rows<kWidth>& rows, int m, Accumulator (&scores)[kCount],
                                        float factor) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = rows.largest[m][h];
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      largest = fmaxf(largest, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
    }
    largest = RowMaximum(largest);
    const float correction = Exp2((rows.largest[m][h] - largest) * factor);
    rows.largest[m][h] = largest;
    const float shift = largest * factor;
    float sum = rows.sum[m][h] * correction;
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
#pragma unroll
      for (int e = 2 * h; e < 2 * h + 2; ++e) {
        scores[n][e] = Exp2(fmaf(scores[n][e], factor, -shift));
        sum += scores[n][e];
      }
    }
    rows.sum[m][h] = sum;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      rows.mix[m][n][2 * h] *= correction;
      rows.mix[m][n][2 * h + 1] *= correction;
    }
  }
}

template <int kCount>
__device__ __forceinline__ void Drop(Accumulator (&p)[kCount], const HeadDropout& dropout,
                                     int query, int key) {
#pragma unroll
  for (int j = 0; j < kCount / 2; ++j) {
    const uint32_t keep = KeepBits<false>(dropout, query, key + 16 * j);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((keep >> i & 1u) == 0) p[2 * j + i / 4][i % 4] = 0.0f;
    }
  }
}

template <int kWidth, int kFirst>
__device__ __forceinline__ void Mix(Rows<kWidth>& rows, const LanePlaces<kWidth>& places,
                                    const Scores<kWidth>& p, const Bf16* values) {
#pragma unroll
  for (int k = 0; k < kKeys<kWidth> / 16; ++k) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int m = kFirst; m < kRowTiles; ++m) PackLeft(a[m], p[m][2 * k], p[m][2 * k + 1]);
#pragma unroll
    for (int j = 0; j < kWidth / 16; ++j) {
      uint32_t b[4];
      LoadRight(b, places, values, j, k);
#pragma unroll
      for (int m = kFirst; m < kRowTiles; ++m) {
        MultiplyAddPair(rows.mix[m][2 * j], rows.mix[m][2 * j + 1], a[m], b);
      }
    }
  }
}

// The work of one thread block: its head and queries, and its tiles in shared memory.
template <int kWidth, bool kDropout>
struct ForwardBlock {
  const AttentionCall<Bf16>& call;
  AttentionHead head;
  int first_query;
  int warp_row;
  Bf16* query_tile;  // [kQueries, kWidth]
  Bf16* key_tile;    // [kKeys, kWidth]
  Bf16* value_tile;  // [kKeys, kWidth]

  __device__ const Bf16* queries() const { return call.qkv + head.query; }
  __device__ const Bf16* keys() const { return queries() + head.output_step; }
  __device__ const Bf16* values() const { return keys() + head.output_step; }

  __device__ void LoadKeys(int first) const {
    LoadTileAsync<kKeys<kWidth>, kWidth>(key_tile, keys(), head.qkv_step, first, call.tokens);
    CopyAsyncCommit();
  }

  // Processes the tile of keys that begins at key `first`, for row tiles [kFirst, kRowTiles).
  // Requires: the copy of these keys has begun.
  template <int kFirst, bool kMasked>
  __device__ void Step(Rows<kWidth>& rows, int first, bool more) const {
    CopyAsyncWait<0>();
    __syncthreads();
    LoadTileAsync<kKeys<kWidth>, kWidth>(value_tile, values(), head.qkv_step, first, call.tokens);
    CopyAsyncCommit();
    Scores<kWidth> p;
    const LanePlaces<kWidth> places;
    Multiply<kWidth, kFirst>(p, places, query_tile, key_tile, warp_row);
    CopyAsyncWait<0>();
    __syncthreads();
    if (more) LoadKeys(first + kKeys<kWidth>);
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int m = kFirst; m < kRowTiles; ++m) {
      const int query = first_query + warp_row + m * kRowTileStep;
      if (kMasked) MaskFuture(p[m], query + lane / 4, first + 2 * (lane % 4));
      Softmax(rows, m, p[m], call.scale * kLog2E);
      if (kDropout) Drop(p[m], HeadDropout(call, head), query, first);
    }
    Mix<kWidth, kFirst>(rows, places, p, value_tile);
  }

  // Stores the results. `index` is the number of the head. Computes the offsets of the head again,
  // because keeping them in registers during the loops would leave fewer registers for the results.
  __device__ void Finish(Rows<kWidth>& rows, int64_t index) const {
    const AttentionHead head(call, index);
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const int row = warp_row + m * kRowTileStep;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float sum = RowSum(rows.sum[m][h]);
        const float inverse = (kDropout ? call.keep_scale : 1.0f) / sum;
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          rows.mix[m][n][2 * h] *= inverse;
          rows.mix[m][n][2 * h + 1] *= inverse;
        }
        const int query = first_query + row + lane / 4 + 8 * h;
        if (lane % 4 == 0 && query < call.tokens) {
          call.log_sum_exp[head.row + query] = rows.largest[m][h] * call.scale + logf(sum);
        }
      }
      StoreRows<kWidth>(call.y + head.output, head.output_step, query_tile, row, first_query,
                        call.tokens, rows.mix[m]);
    }
  }
};

// With width 128, the results and the scores of one step use all 255 registers of a thread, without
// a spill.
template <int kWidth, bool kDropout>
__global__ void __launch_bounds__(kTileThreads, 2)
    TensorAttentionForwardKernel(const AttentionCall<Bf16> call) {
  const int blocks = (call.tokens + kQueries - 1) / kQueries;
  const int64_t index = blockIdx.x / blocks;
  // The blocks with the last queries are started first, because these queries see the most keys.
  const int block = blocks - 1 - static_cast<int>(blockIdx.x - index * blocks);
  Bf16* shared = DynamicShared<Bf16>();
  const ForwardBlock<kWidth, kDropout> forward{call,
                                               AttentionHead(call, index),
                                               block * kQueries,
                                               static_cast<int>(threadIdx.x / 32) * kWarpRows,
                                               shared,
                                               shared + kQueries * kWidth,
                                               shared + (kQueries + kKeys<kWidth>)*kWidth};

  LoadTileAsync<kQueries, kWidth>(forward.query_tile, forward.queries(), forward.head.qkv_step,
                                  forward.first_query, call.tokens);
  forward.LoadKeys(0);
  Rows<kWidth> rows;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    SetZero(rows.mix[m]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows.largest[m][h] = -INFINITY;
      rows.sum[m][h] = 0.0f;
    }
  }
  // Three loops process the keys of the block:
  // - The first loop processes the keys before all queries of the block.
  // - The second loop processes the keys of the first row tile.
  // - The third loop processes the keys that only the second row tile sees.
  constexpr int kStep = kKeys<kWidth>;
  const int end = min(call.tokens, forward.first_query + kQueries);
  int first = 0;
  for (; first < forward.first_query; first += kStep) {
    forward.template Step<0, false>(rows, first, true);
  }
  for (; first < min(end, forward.first_query + kRowTileStep); first += kStep) {
    forward.template Step<0, true>(rows, first, first + kStep < end);
  }
  for (; first < end; first += kStep) {
    forward.template Step<1, true>(rows, first, first + kStep < end);
  }
  forward.Finish(rows, Opaque(static_cast<int>(blockIdx.x)) / blocks);
}

template <int kWidth>
cudaError_t LaunchForward(const AttentionCall<Bf16>& call, cudaStream_t stream) {
  const int64_t blocks = (call.tokens + kQueries - 1) / kQueries;
  const LaunchConfig config{.grid = dim3(static_cast<unsigned>(blocks * call.batch * call.heads)),
                            .block = dim3(kTileThreads),
                            .shared_bytes = SharedBytes<kWidth>(),
                            .stream = stream};
  return call.mask.rate > 0.0 ? Launch(TensorAttentionForwardKernel<kWidth, true>, config, call)
                              : Launch(TensorAttentionForwardKernel<kWidth, false>, config, call);
}

}  // namespace

cudaError_t TensorAttentionForward(const AttentionCall<__nv_bfloat16>& call, cudaStream_t stream) {
  return call.width == 64 ? LaunchForward<64>(call, stream) : LaunchForward<128>(call, stream);
}

}  // namespace lodestar::cuda
