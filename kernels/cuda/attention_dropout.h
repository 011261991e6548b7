// SPDX-License-Identifier: Apache-2.0

// Computes which attention probabilities dropout keeps, for the accumulators of a warp. For device
// code.
//
// One Philox block gives the random words of 4 neighbouring keys of a query. Several lanes of a
// warp need words of the same block. So each lane computes only some of the blocks, and the lanes
// exchange the resulting bits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_kernels.h"

namespace lodestar::cuda {

// Dropout of the attention probabilities of one sample and head.
struct HeadDropout {
  kernels::DropoutMask mask;
  int64_t element;  // index of the probability of (query 0, key 0) in the dropout sequence
  int tokens;
  uint32_t threshold;

  template <typename T>
  __device__ HeadDropout(const AttentionCall<T>& call, const AttentionHead& head)
      : mask(call.mask), element(head.element), tokens(call.tokens), threshold(call.threshold) {}

  // Returns true if a block of random words begins at keys 0, 4, 8, ... of each query.
  __device__ bool aligned() const { return element % 4 == 0 && tokens % 4 == 0; }

  // Returns four bits. Bit i is 1 if dropout keeps the probability of (query, key + i). Requires:
  // the first word of a block of random words is that of (query, key).
  __device__ uint32_t KeepFour(int query, int key) const {
    return KeptOfBlock(ElementOf(query, key) / 4);
  }
  __device__ bool KeepOne(int query, int key) const {
    const int64_t at = ElementOf(query, key);
    return (KeptOfBlock(at / 4) >> (at % 4) & 1u) != 0;
  }

 private:
  __device__ int64_t ElementOf(int query, int key) const {
    return element + static_cast<int64_t>(query) * tokens + key;
  }
  __device__ uint32_t KeptOfBlock(int64_t block) const {
    const PhiloxWords words = kernels::DropoutWords(mask, block);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) bits |= (words.word[i] >= threshold ? 1u : 0u) << i;
    return bits;
  }
};

// Returns eight bits that say which probabilities dropout keeps. They are for this lane's entries
// of two neighbouring accumulators of a warp, which are 16 x 16 probabilities together. Bit 4 * j +
// e is for entry e of accumulator j. With kKeyRows, rows are keys and columns are queries.
// Otherwise rows are queries and columns are keys. `row` and `column` are the first row and column.
template <bool kKeyRows>
__device__ inline uint32_t KeepBits(const HeadDropout& dropout, int row, int column) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int g = lane / 4;
  const int t = lane % 4;
  uint32_t bits = 0;
  if (!dropout.aligned()) {
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const int r = row + g + (i & 2) * 4;
      const int c = column + 8 * (i / 4) + 2 * t + (i & 1);
      const bool keep = kKeyRows ? dropout.KeepOne(c, r) : dropout.KeepOne(r, c);
      bits |= (keep ? 1u : 0u) << i;
    }
    return bits;
  }
  if (kKeyRows) {
    // g is lane / 4. Four lanes whose g differ only in the last two bits need the same blocks of
    // random words: four blocks for each accumulator. Lane w of the four lanes computes the block
    // of entry w of each accumulator.
    const int w = g % 4;
    uint32_t blocks[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int key = row + g - w + (w & 2) * 4;
      blocks[j] = dropout.KeepFour(column + 8 * j + 2 * t + (w & 1), key) << (4 * w);
    }
    uint32_t all = blocks[0] | blocks[1] << 16;
    all |= __shfl_xor_sync(kAll, all, 4);
    all |= __shfl_xor_sync(kAll, all, 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) bits |= (all >> (4 * i + w) & 1u) << i;
    return bits;
  }
  // t is lane % 4. Lanes t and t ^ 1 need the two halves of the same blocks of random words. The
  // lane with the even t computes the blocks of accumulator 0. The other lane computes the blocks
  // of accumulator 1.
  const int odd = t % 2;
  const int key = column + 8 * odd + 4 * (t / 2);
  const uint32_t own = dropout.KeepFour(row + g, key) | dropout.KeepFour(row + g + 8, key) << 4;
  const uint32_t other = __shfl_xor_sync(kAll, own, 1);
  const uint32_t first = (odd == 0 ? own : other) >> (2 * odd);
  const uint32_t second = (odd == 0 ? other : own) >> (2 * odd);
  bits = (first & 3u) | (first >> 4 & 3u) << 2;
  return bits | (second & 3u) << 4 | (second >> 4 & 3u) << 6;
}

}  // namespace lodestar::cuda
