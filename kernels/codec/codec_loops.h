// The inner loops of the codecs: compiled once per instruction set, chosen at run time, the same
// bits from each. No alignment is required.
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
  // Whether every code is below `limit` without its sign.
  bool (*all_below16)(const Code16* codes, uint16_t limit, int64_t n);

  // Bits of the largest magnitude; of a NaN or Inf if there is one.
  uint32_t (*max_magnitude)(const float* values, int64_t n);
  // How many magnitudes of fewer than 2^31 have bits of at least `least`, and which: 1, else 0.
  int64_t (*count_at_least)(const float* values, uint32_t least, int64_t n);
  void (*mark_at_least)(const float* values, uint32_t least, uint8_t* marks, int64_t n);
  // Rounds values / scale up with the probability of what rounding down would lose; `words` are
  // uniform. Codes are within -largest_code and largest_code.
  void (*quantize)(const float* values, float inverse_scale, const uint32_t* words,
                   int32_t largest_code, int8_t* codes, int64_t n);
  // To the nearest code, halves down.
  void (*quantize_to_nearest)(const float* values, float inverse_scale, int32_t largest_code,
                              int8_t* codes, int64_t n);
  void (*dequantize)(const int8_t* codes, float scale, float* values, int64_t n);
  // Codes within -8 and 7, two in a byte, the first one in its low half; the unused half of an odd
  // number is 0.
  void (*pack_halves)(const int8_t* codes, uint8_t* packed, int64_t n);
  void (*dequantize_halves)(const uint8_t* packed, float scale, float* values, int64_t n);

  // Words of the Philox blocks first_block, first_block + 1, ... of common/runtime/random.h;
  // num_blocks is a multiple of 16.
  void (*philox)(uint64_t key, uint64_t stream, uint64_t first_block, int64_t num_blocks,
                 uint32_t* words);
};

// The widest set that this processor and its operating system support.
const Loops& BestLoops();
// Every set that runs here, for tests; `index` from 0 until it returns null.
const Loops* SupportedLoops(int index);

}  // namespace lodestar::codec
