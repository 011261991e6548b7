// SPDX-License-Identifier: Apache-2.0

// Tiles of fp32 in shared memory, and products of tiles by a block of kFloatThreads threads. For
// device code of the attention kernels.
//
// - A thread block owns kFloatOwned queries and loops over the keys, kFloatOther at a time. Or it
//   owns keys and loops over queries.
// - Heads are cut into chunks of kFloatDepth columns.
// - With tx = threadIdx.x % 8 and ty = threadIdx.x / 8, a thread computes rows ty, ty + 16, ty + 32
//   and ty + 48 of the owned tile.
// - kDepthStride and kOtherStride are chosen so that rows begin at multiples of 16 bytes, and 8
//   neighbouring rows lie in different banks of shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/vector_access.h"

namespace lodestar::cuda {

inline constexpr int kFloatThreads = 128;
inline constexpr int kFloatOwned = 64;
inline constexpr int kFloatOther = 32;
inline constexpr int kFloatDepth = 64;

inline constexpr int kDepthStride = kFloatDepth + 4;
inline constexpr int kOtherStride = kFloatOther + 4;
// Number of elements of a tile.
inline constexpr int kOwnedTile = kFloatOwned * kDepthStride;        // [owned, depth]
inline constexpr int kOtherTile = kFloatOther * kDepthStride;        // [other, depth]
inline constexpr int kProbabilityTile = kFloatOwned * kOtherStride;  // [owned, other]

// Results of one thread in a product [owned, other]: [i][j] is row ty + 16 i, column tx + 8 j.
using OwnedByOther = float[4][4];
// Results of one thread in a product [owned, depth]: [i][j] is row ty + 16 i, column 32 * (j / 4) +
// 4 * tx + j % 4.
using OwnedByDepth = float[4][8];

__device__ inline int FloatRow(int i) { return static_cast<int>(threadIdx.x) / 8 + 16 * i; }
__device__ inline int OtherColumn(int j) { return static_cast<int>(threadIdx.x) % 8 + 8 * j; }
__device__ inline int DepthColumn(int j) {
  return 32 * (j / 4) + static_cast<int>(threadIdx.x) % 8 * 4 + j % 4;
}

// Copies rows [first, first + kRows) and columns [column, column + kFloatDepth) of matrix [end,
// width] into tile [kRows, kDepthStride]. Rows of the matrix lie `step` elements apart. Elements
// outside the matrix become 0.
template <int kRows, typename T>
__device__ inline void LoadFloats(float* tile, const T* matrix, int64_t step, int first, int end,
                                  int column, int width) {
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x); at < kRows * kFloatDepth; at += kFloatThreads) {
    const int row = at / kFloatDepth;
    const int depth = at % kFloatDepth;
    const bool exists = first + row < end && column + depth < width;
    tile[row * kDepthStride + depth] =
        exists ? ToFloat(matrix[(first + row) * step + column + depth]) : 0.0f;
  }
}

__device__ inline float4 LoadFour(const float* p) { return *reinterpret_cast<const float4*>(p); }

// Computes scores += owned other^T for owned [kFloatOwned, kDepthStride] and other [kFloatOther,
// kDepthStride].
__device__ inline void AddScores(OwnedByOther& scores, const float* owned, const float* other) {
#pragma unroll 2
  for (int k = 0; k < kFloatDepth; k += 4) {
    float4 b[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) b[j] = LoadFour(other + OtherColumn(j) * kDepthStride + k);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 a = LoadFour(owned + FloatRow(i) * kDepthStride + k);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[i][j] += a.x * b[j].x + a.y * b[j].y + a.z * b[j].z + a.w * b[j].w;
      }
    }
  }
}

__device__ inline void AddScaled(float* sums, float a, float4 b) {
  sums[0] += a * b.x;
  sums[1] += a * b.y;
  sums[2] += a * b.z;
  sums[3] += a * b.w;
}

// Computes sums += p other for p [kFloatOwned, kOtherStride] and other [kFloatOther, kDepthStride].
__device__ inline void AddMix(OwnedByDepth& sums, const float* p, const float* other) {
#pragma unroll 2
  for (int k = 0; k < kFloatOther; k += 4) {
    float4 a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = LoadFour(p + FloatRow(i) * kOtherStride + k);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float4 low = LoadFour(other + (k + r) * kDepthStride + DepthColumn(0));
      const float4 high = LoadFour(other + (k + r) * kDepthStride + DepthColumn(4));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float factor = r == 0 ? a[i].x : r == 1 ? a[i].y : r == 2 ? a[i].z : a[i].w;
        AddScaled(sums[i], factor, low);
        AddScaled(sums[i] + 4, factor, high);
      }
    }
  }
}

// Copies the thread's `p` to tile [kFloatOwned, kOtherStride].
__device__ inline void StoreProbabilities(float* tile, const OwnedByOther& p) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) tile[FloatRow(i) * kOtherStride + OtherColumn(j)] = p[i][j];
  }
}

// Stores sums * factor to columns [column, column + kFloatDepth) of rows [first, end) of matrix
// [end, width]. Rows of the matrix lie `step` elements apart.
template <typename T>
__device__ inline void StoreFloats(T* matrix, int64_t step, int first, int end, int column,
                                   int width, const OwnedByDepth& sums, float factor) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = first + FloatRow(i);
    if (row >= end) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int at = column + DepthColumn(j);
      if (at < width) matrix[row * step + at] = FromFloat<T>(sums[i][j] * factor);
    }
  }
}

template <int kColumns>
__device__ inline void SetZero(float (&x)[4][kColumns]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) x[i][j] = 0.0f;
  }
}

// Return the maximum and the sum of x over the 8 threads that compute the same rows.
__device__ inline float RowMaximumOfEight(float x) {
#pragma unroll
  for (int offset = 1; offset < 8; offset *= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  }
  return x;
}
__device__ inline float RowSumOfEight(float x) {
#pragma unroll
  for (int offset = 1; offset < 8; offset *= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

}  // namespace lodestar::cuda
