// SPDX-License-Identifier: Apache-2.0

// Declares the inner loops of the codecs. They are compiled once per instruction set and chosen at
// run time; every set gives the same bits. No alignment is required.
#pragma once

#include <cstdint>

namespace lodestar::codec {

// A code of 16 bits, at any address.
typedef uint16_t Code16 __attribute__((aligned(1)));

struct Loops {
  const char* name;  // "avx512", "avx2", "sse2"

  void (*to_bf16)(const float* values, Code16* codes, int64_t n);
  void (*from_bf16)(const Code16* codes, float* values, int64_t n);
  void (*to_fp16)(const float* values, Code16* codes, int64_t n);
  void (*from_fp16)(const Code16* codes, float* values, int64_t n);
  // Returns true if every code, taken without its sign, is below `limit`.
  bool (*all_below16)(const Code16* codes, uint16_t limit, int64_t n);

  // Returns the bits of the largest magnitude. A NaN or Inf counts as larger than every finite
  // value.
  uint32_t (*max_magnitude)(const float* values, int64_t n);
  // count_at_least returns the number of magnitudes whose bits, as an integer, are at least
  // `least`. n must be below 2^31. mark_at_least sets marks[i] to 1 for these elements, and to 0
  // for all others.
  int64_t (*count_at_least)(const float* values, uint32_t least, int64_t n);
  void (*mark_at_least)(const float* values, uint32_t least, uint8_t* marks, int64_t n);
  // Rounds values / scale up or down at random. The probability of rounding up is the fraction that
  // rounding down would lose. `words` are uniform random words. Codes are limited to -largest_code
  // and largest_code.
  void (*quantize)(const float* values, float inverse_scale, const uint32_t* words,
                   int32_t largest_code, int8_t* codes, int64_t n);
  // Rounds values / scale to the nearest code. A value halfway between two codes is rounded down.
  void (*quantize_to_nearest)(const float* values, float inverse_scale, int32_t largest_code,
                              int8_t* codes, int64_t n);
  void (*dequantize)(const int8_t* codes, float scale, float* values, int64_t n);
  // Packs codes between -8 and 7, two codes in a byte. The first code is in the low half. If n is
  // odd, the unused half of the last byte is 0.
  void (*pack_halves)(const int8_t* codes, uint8_t* packed, int64_t n);
  void (*dequantize_halves)(const uint8_t* packed, float scale, float* values, int64_t n);

  // Writes the words of the Philox blocks first_block, first_block + 1, ... of
  // common/runtime/random.h. num_blocks is a multiple of 16.
  void (*philox)(uint64_t key, uint64_t stream, uint64_t first_block, int64_t num_blocks,
                 uint32_t* words);
};

// Returns the loops of the widest instruction set that this processor and its operating system
// support.
const Loops& BestLoops();
// For tests. Returns the loops of the `index`-th instruction set that this processor supports.
// Returns null if there are not so many.
const Loops* SupportedLoops(int index);

}  // namespace lodestar::codec
