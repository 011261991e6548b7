// SPDX-License-Identifier: Apache-2.0

// Backward attention on tensor cores. With p as the probabilities of a head:
//   dp = dy v^T,  ds = p * (dp - delta),
//   dv = p^T dy,  dk = scale * ds^T q,  dq = scale * ds k.
// One kernel runs twice, so that each sum is computed by one thread block in a fixed order:
// - In the first run a block owns keys and loops over the queries that see them.
// - In the second run a block owns queries and loops over the keys that they see.
// Both runs compute p and ds, tile by tile. The rows of these tiles are the owned tokens. So a tile
// can stay in registers and be the left factor of the next product.
#include "kernels/cuda/attention_dropout.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/compiler_seam.h"
#include "kernels/cuda/launch.h"

namespace lodestar::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634f;
// Number of rows that a block owns (kOwned), and number of rows that it loads at a time (kOther).
// Two blocks must fit into the registers of a multiprocessor, and on sm_80 also into its shared
// memory.
template <int kWidth>
struct Sizes {
  static constexpr int kRowTiles = kWidth == 64 ? 2 : 1;
  static constexpr int kOwned = kRowTiles * kRowTileStep;
  static constexpr int kOther = kWidth == 64 ? 64 : 32;
  static constexpr int kOwnedElements = kOwned * kWidth;
  static constexpr int kOtherElements = kOther * kWidth;
  // Shared memory of a block: two owned tiles, four tiles of kOther rows, and two sets of
  // statistics of kOther queries. The block computes with two of the four tiles while the other two
  // are being loaded.
  static constexpr size_t kSharedBytes =
      (2 * kOwnedElements + 4 * kOtherElements) * sizeof(Bf16) + 2 * kOther * sizeof(float2);
};

// Sums of one warp: [kRowTiles][16 rows][kWidth].
template <int kWidth>
using Sums = Accumulator[Sizes<kWidth>::kRowTiles][kWidth / 8];
// Results of one warp for some columns: [kRowTiles][16 rows][8 * kCount columns].
template <int kWidth, int kCount>
using Chunk = Accumulator[Sizes<kWidth>::kRowTiles][kCount];

// Rows of an owned tile, as left factors of products. With kKept they stay in registers. Otherwise
// they are loaded from shared memory for each use.
template <int kWidth, bool kKept>
class LeftFactors {
 public:
  // Sets the tile. Must be called after the tile was written to shared memory.
  __device__ __forceinline__ void Take(const Bf16* tile, int warp_row) {
    tile_ = tile + warp_row * kWidth;
    if (!kKept) return;
    const LanePlaces<kWidth> places;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        LoadLeft(kept_[m][k], places, tile_, m * kRowTileStep, k);
      }
    }
  }
  __device__ __forceinline__ void Get(uint32_t (&a)[4], const LanePlaces<kWidth>& places, int m,
                                      int k) const {
    if (kKept) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = kept_[m][k][i];
    } else {
      LoadLeft(a, places, tile_, m * kRowTileStep, k);
    }
  }

 private:
  static constexpr int kRowTiles = Sizes<kWidth>::kRowTiles;
  static constexpr int kSteps = kWidth / 16;
  const Bf16* tile_;  // [rows, kWidth], from the warp's first row on
  uint32_t kept_[kRowTiles][kSteps][4];
};

// Computes chunk = A B^T for row tiles [kBegin, kEnd). A has the rows of `owned`, and B has the
// first 8 * kCount rows of `other`.
template <int kWidth, int kBegin, int kEnd, int kCount, bool kKept>
__device__ __forceinline__ void Multiply(Chunk<kWidth, kCount>& chunk,
                                         const LanePlaces<kWidth>& places,
                                         const LeftFactors<kWidth, kKept>& owned,
                                         const Bf16* other) {
#pragma unroll
  for (int m = kBegin; m < kEnd; ++m) SetZero(chunk[m]);
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    uint32_t a[kEnd][4];
#pragma unroll
    for (int m = kBegin; m < kEnd; ++m) owned.Get(a[m], places, m, k);
#pragma unroll
    for (int j = 0; j < kCount / 2; ++j) {
      uint32_t b[4];
      LoadRightTransposed(b, places, other, j, k);
#pragma unroll
      for (int m = kBegin; m < kEnd; ++m) {
        MultiplyAddPair(chunk[m][2 * j], chunk[m][2 * j + 1], a[m], b);
      }
    }
  }
}

// Computes sums += chunk B for row tiles [kBegin, kEnd). B has the first 8 * kCount rows of
// `other`.
template <int kWidth, int kBegin, int kEnd, int kCount>
__device__ __forceinline__ void AddProduct(Sums<kWidth>& sums, const LanePlaces<kWidth>& places,
                                           const Chunk<kWidth, kCount>& chunk, const Bf16* other) {
#pragma unroll
  for (int k = 0; k < kCount / 2; ++k) {
    uint32_t a[kEnd][4];
#pragma unroll
    for (int m = kBegin; m < kEnd; ++m) PackLeft(a[m], chunk[m][2 * k], chunk[m][2 * k + 1]);
#pragma unroll
    for (int j = 0; j < kWidth / 16; ++j) {
      uint32_t b[4];
      LoadRight(b, places, other, j, k);
#pragma unroll
      for (int m = kBegin; m < kEnd; ++m) {
        MultiplyAddPair(sums[m][2 * j], sums[m][2 * j + 1], a[m], b);
      }
    }
  }
}

// Returns two statistics of a query: log_sum_exp * log2(e), and delta.
__device__ __forceinline__ float2 LoadStatistics(const AttentionCall<Bf16>& call, int64_t row,
                                                 int query) {
  // Queries beyond the last token are zero vectors, so they add nothing to any sum.
  if (query >= call.tokens) return make_float2(0.0f, 0.0f);
  return make_float2(call.log_sum_exp[row + query] * kLog2E, call.delta[row + query]);
}

// The work of one thread block. With kKeysOwned, the block owns keys, and queries are the other
// side. Otherwise it owns queries, and keys are the other side. Rows of p and ds are owned tokens.
// Columns are tokens of the other side.
template <int kWidth, bool kKeysOwned, bool kDropout>
class BackwardBlock {
 public:
  using Size = Sizes<kWidth>;
  static constexpr int kRowTiles = Size::kRowTiles;
  // Number of tokens of the other side whose results are in registers at a time. More would not fit
  // into the registers beside the sums.
  static constexpr int kChunk = kWidth == 64 && kKeysOwned ? 16 : 32;

  __device__ BackwardBlock(const AttentionCall<Bf16>& call, Bf16* shared)
      : call_(call),
        head_(call, blockIdx.x / NumBlocks()),
        dropout_(call, head_),
        warp_row_(static_cast<int>(threadIdx.x / 32) * kWarpRows),
        lane_(static_cast<int>(threadIdx.x % 32)),
        owned_(shared),
        others_(shared + 2 * Size::kOwnedElements),
        statistics_(reinterpret_cast<float2*>(others_ + 4 * Size::kOtherElements)) {
    // Blocks with the lowest numbers are started first, so they get the most work: the first keys,
    // which most queries see, or the last queries, which see most keys.
    const int block = static_cast<int>(blockIdx.x % NumBlocks());
    first_ = (kKeysOwned ? block : NumBlocks() - 1 - block) * Size::kOwned;
  }

  __device__ void Run() {
    const int begin = kKeysOwned ? first_ : 0;
    const int end = kKeysOwned ? call_.tokens : min(call_.tokens, first_ + Size::kOwned);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      SetZero(ds_sums_[m]);
      if (kKeysOwned) SetZero(p_sums_[m]);
    }
    const Bf16* queries = call_.qkv + head_.query;
    const Bf16* keys = queries + head_.output_step;
    const Bf16* values = keys + head_.output_step;
    const Bf16* dy = call_.dy + head_.output;
    LoadOwned(0, kKeysOwned ? keys : queries, head_.qkv_step);
    if (kKeysOwned) {
      LoadOwned(1, values, head_.qkv_step);
    } else {
      LoadOwned(1, dy, head_.output_step);
      LoadRowStatistics();
    }
    LoadOthers(0, begin);
    StoreStatistics(0, NextStatistics(begin));
    CopyAsyncWait<0>();
    __syncthreads();
    left0_.Take(owned(0), warp_row_);
    left1_.Take(owned(1), warp_row_);
    int stage = 0;
    for (int first = begin; first < end; first += Size::kOther) {
      CopyAsyncWait<0>();
      __syncthreads();
      const int next = first + Size::kOther;
      if (next < end) LoadOthers(1 - stage, next);
      const float2 statistics = NextStatistics(next);
      Step(stage, first);
      StoreStatistics(1 - stage, statistics);
      stage = 1 - stage;
    }
    Finish();
  }

 private:
  __device__ int NumBlocks() const { return (call_.tokens + Size::kOwned - 1) / Size::kOwned; }

  __device__ Bf16* owned(int which) const { return owned_ + which * Size::kOwnedElements; }
  __device__ Bf16* other(int stage, int which) const {
    return others_ + (2 * stage + which) * Size::kOtherElements;
  }

  __device__ void LoadOwned(int which, const Bf16* matrix, int64_t step) const {
    LoadTileAsync<Size::kOwned, kWidth>(owned(which), matrix, step, first_, call_.tokens);
  }
  // Loads the next tiles of the other side: queries and dy if keys are owned, otherwise keys and
  // values.
  __device__ void LoadOthers(int stage, int first) const {
    const Bf16* queries = call_.qkv + head_.query;
    const Bf16* second = kKeysOwned ? call_.dy + head_.output : queries + 2 * head_.output_step;
    LoadTileAsync<Size::kOther, kWidth>(other(stage, 0),
                                        kKeysOwned ? queries : queries + head_.output_step,
                                        head_.qkv_step, first, call_.tokens);
    LoadTileAsync<Size::kOther, kWidth>(other(stage, 1), second,
                                        kKeysOwned ? head_.output_step : head_.qkv_step, first,
                                        call_.tokens);
    CopyAsyncCommit();
  }

  // Returns the statistics of one query of the next tile, for StoreStatistics(). That function puts
  // them into shared memory. If queries are owned, they are not needed, and the result is zeros.
  __device__ float2 NextStatistics(int first) const {
    const int at = static_cast<int>(threadIdx.x);
    if (!kKeysOwned || at >= Size::kOther) return make_float2(0.0f, 0.0f);
    return LoadStatistics(call_, head_.row, first + at);
  }
  __device__ void StoreStatistics(int stage, float2 statistics) const {
    const int at = static_cast<int>(threadIdx.x);
    if (kKeysOwned && at < Size::kOther) statistics_[stage * Size::kOther + at] = statistics;
  }
  __device__ void LoadRowStatistics() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int query = first_ + warp_row_ + m * kRowTileStep + lane_ / 4 + 8 * h;
        row_statistics_[m][h] = LoadStatistics(call_, head_.row, query);
      }
    }
  }

  // Returns the statistics of the query that entry e of an accumulator belongs to.
  __device__ float2 Statistics(int m, int stage, int column, int e) const {
    if (!kKeysOwned) return row_statistics_[m][e / 2];
    return statistics_[stage * Size::kOther + column + e % 2];
  }

  // Processes the tile of the other side that begins at token `first`. Skips row tiles in which no
  // query sees a key. Masks elements whose key comes after the query.
  __device__ void Step(int stage, int first) {
    constexpr int kLast = kRowTiles - 1;
    if (kKeysOwned) {
      if (first >= first_ + Size::kOwned - 1) {
        Chunks<0, kRowTiles, false>(stage, first);
      } else if (kLast > 0 && first + Size::kOther <= first_ + kRowTileStep) {
        Chunks<0, 1, true>(stage, first);
      } else {
        Chunks<0, kRowTiles, true>(stage, first);
      }
    } else {
      if (first + Size::kOther - 1 <= first_) {
        Chunks<0, kRowTiles, false>(stage, first);
      } else if (kLast > 0 && first >= first_ + kRowTileStep) {
        Chunks<kLast, kRowTiles, true>(stage, first);
      } else {
        Chunks<0, kRowTiles, true>(stage, first);
      }
    }
  }

  template <int kBegin, int kEnd, bool kMasked>
  __device__ __forceinline__ void Chunks(int stage, int first) {
// If the loop were unrolled, the compiler would keep several chunks in registers at a time.
#pragma unroll 1
    for (int at = 0; at < Size::kOther; at += kChunk) {
      const LanePlaces<kWidth> places;
      const Bf16* other0 = other(stage, 0) + at * kWidth;
      const Bf16* other1 = other(stage, 1) + at * kWidth;
      Chunk<kWidth, kChunk / 8> p;
      Chunk<kWidth, kChunk / 8> ds;
      Multiply<kWidth, kBegin, kEnd>(p, places, left0_, other0);
      Multiply<kWidth, kBegin, kEnd>(ds, places, left1_, other1);
#pragma unroll
      for (int m = kBegin; m < kEnd; ++m) {
        Differentiate<kMasked>(p[m], ds[m], m, stage, at, first_ + warp_row_ + m * kRowTileStep,
                               first + at);
      }
      if (kKeysOwned) AddProduct<kWidth, kBegin, kEnd>(p_sums_, places, p, other1);
      AddProduct<kWidth, kBegin, kEnd>(ds_sums_, places, ds, other0);
    }
  }

  // Replaces the scores in `p` by the probabilities. They are 0 if dropout drops them, and are not
  // yet scaled by keep_scale. Replaces dp in `ds` by the gradients of the scores. `row` and
  // `column` are the tokens of the first row and column.
  template <bool kMasked>
  __device__ __forceinline__ void Differentiate(Accumulator (&p)[kChunk / 8],
                                                Accumulator (&ds)[kChunk / 8], int m, int stage,
                                                int at, int row, int column) const {
    const float factor = call_.scale * kLog2E;
    // Bits 0 to 3 are for the entries of accumulator n. Bits 4 to 7 are for the entries of
    // accumulator n + 1.
    uint32_t keep = 0;
#pragma unroll
    for (int n = 0; n < kChunk / 8; ++n) {
      if (kDropout) {
        keep = n % 2 == 0 ? KeepBits<kKeysOwned>(dropout_, row, column + 8 * n) : keep >> 4;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float2 statistics = Statistics(m, stage, at + 8 * n + 2 * (lane_ % 4), e);
        float probability = Exp2(fmaf(p[n][e], factor, -statistics.x));
        if (kMasked) {
          const int r = row + lane_ / 4 + 8 * (e / 2);
          const int c = column + 8 * n + 2 * (lane_ % 4) + e % 2;
          if (kKeysOwned ? r > c : c > r) probability = 0.0f;
        }
        float dp = ds[n][e];
        p[n][e] = probability;
        if (kDropout) {
          const bool kept = (keep >> e & 1u) != 0;
          dp = kept ? dp * call_.keep_scale : 0.0f;
          if (!kept) p[n][e] = 0.0f;
        }
        ds[n][e] = probability * (dp - statistics.y);
      }
    }
  }

  __device__ void Store(int which, Sums<kWidth>& sums, float factor) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[m][n][e] *= factor;
      }
      StoreRows<kWidth>(call_.dqkv + head_.query + which * head_.output_step, head_.qkv_step,
                        owned(which == 2 ? 1 : 0), warp_row_ + m * kRowTileStep, first_,
                        call_.tokens, sums[m]);
    }
  }
  __device__ void Finish() {
    Store(kKeysOwned ? 1 : 0, ds_sums_, call_.scale);
    if (kKeysOwned) Store(2, p_sums_, kDropout ? call_.keep_scale : 1.0f);
  }

  const AttentionCall<Bf16>& call_;
  const AttentionHead head_;
  const HeadDropout dropout_;
  const int warp_row_;
  const int lane_;
  Bf16* const owned_;         // [2, kOwned, kWidth]: keys and values, or queries and dy
  Bf16* const others_;        // [2 stages, 2, kOther, kWidth]: queries and dy, or keys and values
  float2* const statistics_;  // [2 stages, kOther]
  int first_;                 // token of the first owned row
  float2 row_statistics_[kRowTiles][2];
  LeftFactors<kWidth, true> left0_;
  LeftFactors<kWidth, !kKeysOwned> left1_;
  Sums<kWidth> ds_sums_;
  Sums<kWidth> p_sums_;
};

template <int kWidth, bool kKeysOwned, bool kDropout>
__global__ void __launch_bounds__(kTileThreads, 2)
    TensorAttentionBackwardKernel(const AttentionCall<Bf16> call) {
  BackwardBlock<kWidth, kKeysOwned, kDropout>(call, DynamicShared<Bf16>()).Run();
}

template <int kWidth, bool kDropout>
cudaError_t LaunchBackward(const AttentionCall<Bf16>& call, cudaStream_t stream) {
  using Size = Sizes<kWidth>;
  const int64_t blocks = (call.tokens + Size::kOwned - 1) / Size::kOwned;
  const LaunchConfig config{.grid = dim3(static_cast<unsigned>(blocks * call.batch * call.heads)),
                            .block = dim3(kTileThreads),
                            .shared_bytes = Size::kSharedBytes,
                            .stream = stream};
  const cudaError_t error =
      Launch(TensorAttentionBackwardKernel<kWidth, true, kDropout>, config, call);
  if (error != cudaSuccess) return error;
  return Launch(TensorAttentionBackwardKernel<kWidth, false, kDropout>, config, call);
}

template <int kWidth>
cudaError_t LaunchBackward(const AttentionCall<Bf16>& call, cudaStream_t stream) {
  return call.mask.rate > 0.0 ? LaunchBackward<kWidth, true>(call, stream)
                              : LaunchBackward<kWidth, false>(call, stream);
}

}  // namespace

cudaError_t TensorAttentionBackward(const AttentionCall<__nv_bfloat16>& call, cudaStream_t stream) {
  return call.width == 64 ? LaunchBackward<64>(call, stream) : LaunchBackward<128>(call, stream);
}

}  // namespace lodestar::cuda
