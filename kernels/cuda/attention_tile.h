// Tiles of bf16 rows in shared memory and the fragments that tensor cores take from them. For
// device code of the attention kernels: blocks of kTileThreads, four warps.
//
// A tile row of kWidth elements is cut into 16-byte chunks, and chunk c of row r lies at place
// c ^ (r % 8): the 8 rows of one chunk that ldmatrix reads at once then lie in different banks.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/compiler_seam.h"

namespace lodestar::cuda {

inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = 32 * kTileWarps;
// Rows that one product of a warp has; row tile m of warp w are rows m * 64 + w * 16 ... + 15 of
// the block's, so that each diagonal tile of 64 x 64 gives all warps the same work.
inline constexpr int kWarpRows = 16;
inline constexpr int kRowTileStep = kTileWarps * kWarpRows;

using Bf16 = __nv_bfloat16;

// Accumulators of 16 x 8 results: of lane 4 g + t, rows g and g + 8, columns 2 t and 2 t + 1, in
// the order (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
using Accumulator = float[4];

template <int kWidth>
__device__ __forceinline__ int ChunkOffset(int row, int chunk) {
  return row * kWidth + ((chunk ^ (row & 7)) * 8);
}

// Begins to copy rows [first, first + kRows) of matrix [end, kWidth], whose rows lie `step`
// elements apart, into tile [kRows, kWidth]; rows from `end` on are zero.
template <int kRows, int kWidth>
__device__ __forceinline__ void LoadTileAsync(Bf16* tile, const Bf16* matrix, int64_t step,
                                              int first, int end) {
  constexpr int kChunks = kWidth / 8;
  constexpr int kRowsAtOnce = kTileThreads / kChunks;
  static_assert(kRowsAtOnce % 8 == 0 && kRows % kRowsAtOnce == 0);
  const int thread = Opaque(static_cast<int>(threadIdx.x));
  const int chunk = thread % kChunks;
  int row = thread / kChunks;
  Bf16* to = tile + ChunkOffset<kWidth>(row, chunk);
  row += first;
  const Bf16* from = matrix + row * step + chunk * 8;
#pragma unroll
  for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
    CopyAsync16(to + i * kRowsAtOnce * kWidth, from, row < end);
    row += kRowsAtOnce;
    from += kRowsAtOnce * step;
  }
}

// Where a lane's rows of a 16 x 16 piece begin, in elements from the piece's first row: XOR with
// 16 c leads to the piece at columns 16 c. To be taken anew in each step of a loop, or else the
// compiler keeps all the sums in registers.
template <int kWidth>
struct LanePlaces {
  int tall;  // rows lane % 16, the left 8 columns for lanes 0-15
  int wide;  // 8 rows, then 8 more; the left 8 columns for lanes 0-7 and 16-23

  __device__ __forceinline__ LanePlaces() {
    const int lane = static_cast<int>(threadIdx.x % 32);
    tall = Opaque(ChunkOffset<kWidth>(lane % 16, lane / 16));
    wide = Opaque(ChunkOffset<kWidth>(lane / 16 * 8 + lane % 8, lane / 8 % 2));
  }
};

// A 16 x 16 left factor: rows [row, row + 16), columns [16 k, 16 k + 16) of the tile.
template <int kWidth>
__device__ __forceinline__ void LoadLeft(uint32_t (&a)[4], const LanePlaces<kWidth>& places,
                                         const Bf16* tile, int row, int k) {
  LoadMatrixX4(a, tile + row * kWidth + (places.tall ^ (16 * k)));
}

// Two 16 x 8 right factors of X in A X^T: columns 16 j ... + 15 of the product are rows of the
// tile, its columns [16 k, 16 k + 16) are summed over. Words 0, 1: the first factor.
template <int kWidth>
__device__ __forceinline__ void LoadRightTransposed(uint32_t (&b)[4],
                                                    const LanePlaces<kWidth>& places,
                                                    const Bf16* tile, int j, int k) {
  LoadMatrixX4(b, tile + 16 * j * kWidth + (places.wide ^ (16 * k)));
}

// Two 16 x 8 right factors of X in A X: rows [16 k, 16 k + 16) of the tile are summed over,
// columns 16 j ... + 15.
template <int kWidth>
__device__ __forceinline__ void LoadRight(uint32_t (&b)[4], const LanePlaces<kWidth>& places,
                                          const Bf16* tile, int j, int k) {
  LoadMatrixX4Transposed(b, tile + 16 * k * kWidth + (places.tall ^ (16 * j)));
}

// Two bf16 in a register, `low` in its low half.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);  // one instruction
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// Two neighbouring accumulators as a left factor: their layouts agree.
__device__ __forceinline__ void PackLeft(uint32_t (&a)[4], const Accumulator& left,
                                         const Accumulator& right) {
  a[0] = PackBf16(left[0], left[1]);
  a[1] = PackBf16(left[2], left[3]);
  a[2] = PackBf16(right[0], right[1]);
  a[3] = PackBf16(right[2], right[3]);
}

// left, right += A B for the two right factors that one load brings.
__device__ __forceinline__ void MultiplyAddPair(Accumulator& left, Accumulator& right,
                                                const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  const uint32_t first[2] = {b[0], b[1]};
  const uint32_t second[2] = {b[2], b[3]};
  MultiplyAdd(left, a, first);
  MultiplyAdd(right, a, second);
}

template <int kCount>
__device__ __forceinline__ void SetZero(Accumulator (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[i][e] = 0.0f;
  }
}

// Rounds 16 x kWidth results into rows of tile [rows, kWidth] from `row` on. From there 16-byte
// stores take them to rows [first, end) of matrix [end, kWidth], whose rows lie `step` elements
// apart: row 0 of the tile is row `first` of the matrix. No other warp may use these rows of the
// tile.
template <int kWidth>
__device__ __forceinline__ void StoreRows(Bf16* matrix, int64_t step, Bf16* tile, int row,
                                          int first, int end,
                                          const Accumulator (&sums)[kWidth / 8]) {
  const int lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll
  for (int chunk = 0; chunk < kWidth / 8; ++chunk) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Bf16* to = tile + ChunkOffset<kWidth>(row + lane / 4 + 8 * half, chunk) + 2 * (lane % 4);
      *reinterpret_cast<uint32_t*>(to) = PackBf16(sums[chunk][2 * half], sums[chunk][2 * half + 1]);
    }
  }
  __syncwarp();
  constexpr int kChunks = kWidth / 8;
#pragma unroll
  for (int i = 0; i < kWarpRows * kChunks / 32; ++i) {
    const int at = lane + 32 * i;
    const int tile_row = row + at / kChunks;
    const int chunk = at % kChunks;
    if (first + tile_row >= end) continue;
    *reinterpret_cast<uint4*>(matrix + (first + tile_row) * step + chunk * 8) =
        *reinterpret_cast<const uint4*>(tile + ChunkOffset<kWidth>(tile_row, chunk));
  }
}

}  // namespace lodestar::cuda
