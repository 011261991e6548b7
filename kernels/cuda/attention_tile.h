// SPDX-License-Identifier: Apache-2.0

// Tiles of bf16 rows in shared memory, and the fragments of tiles that tensor cores use. For device
// code of the attention kernels, in blocks of kTileThreads threads (four warps).
//
// A tile row of kWidth elements is cut into 16-byte chunks. Chunk c of row r is stored at index c ^
// (r % 8) of the row. ldmatrix reads the same chunk of 8 rows at once. In this order, these 8
// chunks lie in different banks.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/compiler_seam.h"

namespace lodestar::cuda {

inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = 32 * kTileWarps;
// Number of rows in one product of a warp. Row tile m of warp w has rows [64 m + 16 w, 64 m + 16 w
// + 16) of the block. So each warp has 16 rows of each 64 x 64 tile on the diagonal, and all warps
// have the same work.
inline constexpr int kWarpRows = 16;
inline constexpr int kRowTileStep = kTileWarps * kWarpRows;

using Bf16 = __nv_bfloat16;

// A lane's part of 16 x 8 results. Lane 4 g + t has rows g and g + 8, columns 2 t and 2 t + 1, in
// the order (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
using Accumulator = float[4];

template <int kWidth>
__device__ __forceinline__ int ChunkOffset(int row, int chunk) {
  return row * kWidth + ((chunk ^ (row & 7)) * 8);
}

// Begins to copy rows [first, first + kRows) of matrix [end, kWidth] into tile [kRows, kWidth].
// Rows of the matrix lie `step` elements apart. Tile rows beyond the matrix become 0.
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

// Offsets that a lane passes to LoadMatrixX4() for 16 rows and 16 columns of a tile, in elements
// from the first of these rows. The offsets are for column 0. For column 16 c, use offset ^ (16 *
// c). Make a new object in each step of a loop. Otherwise the compiler would keep all these offsets
// in registers.
template <int kWidth>
struct LanePlaces {
  int tall;  // row lane % 16; lanes 0-15 take the left 8 columns
  // Lanes 0-15 take rows 0-7, and lanes 16-31 take rows 8-15. Lanes 0-7 and 16-23 take the left 8
  // columns, all others the right 8 columns.
  int wide;

  __device__ __forceinline__ LanePlaces() {
    const int lane = static_cast<int>(threadIdx.x % 32);
    tall = Opaque(ChunkOffset<kWidth>(lane % 16, lane / 16));
    wide = Opaque(ChunkOffset<kWidth>(lane / 16 * 8 + lane % 8, lane / 8 % 2));
  }
};

// Loads a 16 x 16 left factor: rows [row, row + 16), columns [16 k, 16 k + 16) of the tile.
template <int kWidth>
__device__ __forceinline__ void LoadLeft(uint32_t (&a)[4], const LanePlaces<kWidth>& places,
                                         const Bf16* tile, int row, int k) {
  LoadMatrixX4(a, tile + row * kWidth + (places.tall ^ (16 * k)));
}

// Loads right factors of A X^T, where X is the tile. They are rows [16 j, 16 j + 16) and columns
// [16 k, 16 k + 16) of X. b[0] and b[1] are the first 8 of these rows, b[2] and b[3] the last 8.
template <int kWidth>
__device__ __forceinline__ void LoadRightTransposed(uint32_t (&b)[4],
                                                    const LanePlaces<kWidth>& places,
                                                    const Bf16* tile, int j, int k) {
  LoadMatrixX4(b, tile + 16 * j * kWidth + (places.wide ^ (16 * k)));
}

// Loads right factors of A X, where X is the tile. They are rows [16 k, 16 k + 16) and columns [16
// j, 16 j + 16) of X. b[0] and b[1] are the first 8 of these columns, b[2] and b[3] the last 8.
template <int kWidth>
__device__ __forceinline__ void LoadRight(uint32_t (&b)[4], const LanePlaces<kWidth>& places,
                                          const Bf16* tile, int j, int k) {
  LoadMatrixX4Transposed(b, tile + 16 * k * kWidth + (places.tall ^ (16 * j)));
}

// Returns two bf16 in one register, with `low` in the lower half.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);  // compiles to one instruction
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// Converts two neighbouring accumulators to a left factor. A lane has the same elements of both, so
// lanes exchange nothing.
__device__ __forceinline__ void PackLeft(uint32_t (&a)[4], const Accumulator& left,
                                         const Accumulator& right) {
  a[0] = PackBf16(left[0], left[1]);
  a[1] = PackBf16(left[2], left[3]);
  a[2] = PackBf16(right[0], right[1]);
  a[3] = PackBf16(right[2], right[3]);
}

// Computes left += A B0 and right += A B1. `b` has both right factors, as one load gives them.
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

// Rounds 16 x kWidth results to bf16, and stores them to rows [first + row, first + row + 16) of
// matrix [end, kWidth]. Does not store rows from `end` on. Rows of the matrix lie `step` elements
// apart. Collects the results in rows [row, row + 16) of `tile` first, so that each store to the
// matrix has 16 bytes. No other warp may use these rows of `tile`.
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
