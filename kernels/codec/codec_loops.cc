// SPDX-License-Identifier: Apache-2.0

// Compiled once per instruction set, whose name is LODESTAR_ISA. The compiler vectorises the loops.
// Library headers with inline functions of external linkage must not be included: the linker might
// use the version of such a function that was compiled for the widest instruction set.
#include "kernels/codec/codec_loops.h"

#include <immintrin.h>

#define LODESTAR_NAME_OF(isa) LODESTAR_NAME_OF_INNER(isa)
#define LODESTAR_NAME_OF_INNER(isa) #isa

namespace lodestar::codec::LODESTAR_ISA {

Loops MakeLoops();

namespace {

constexpr uint32_t kInfinity = 0x7F800000;  // bits of fp32
constexpr uint32_t kMagnitude = 0x7FFFFFFF;

inline uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }
inline float FloatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }

void ToBf16(const float* __restrict values, Code16* __restrict codes, int64_t n) {
  constexpr uint32_t kLargest = 0x7F7F0000;  // the largest finite bf16
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = BitsOf(values[i]);
    const uint32_t magnitude = bits & kMagnitude;
    const uint32_t rounded = magnitude + 0x7FFF + ((magnitude >> 16) & 1);
    const uint32_t finite = rounded < kLargest ? rounded : kLargest;
    // A NaN becomes this NaN. If only its low bits were dropped, it could become Inf.
    const uint32_t special = magnitude > kInfinity ? 0x7FC00000u : kInfinity;
    const uint32_t result = magnitude < kInfinity ? finite : special;
    codes[i] = static_cast<uint16_t>((result | (bits & ~kMagnitude)) >> 16);
  }
}

void FromBf16(const Code16* __restrict codes, float* __restrict values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = FloatOf(static_cast<uint32_t>(codes[i]) << 16);
}

void ToFp16(const float* __restrict values, Code16* __restrict codes, int64_t n) {
  constexpr uint32_t kLargest = 0x477FE000;         // 65504
  constexpr uint32_t kSmallestNormal = 0x38800000;  // 2^-14
  constexpr uint32_t kRebias = 112u << 23;          // difference of the exponents' biases
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = BitsOf(values[i]);
    const uint32_t magnitude = bits & kMagnitude;
    const uint32_t bounded = magnitude < kLargest ? magnitude : kLargest;
    const uint32_t normal = (bounded - kRebias + 0xFFF + ((bounded >> 13) & 1)) >> 13;
    // At 0.5 the spacing of fp32 numbers is 2^-24, which is the unit of fp16 subnormals. So adding
    // 0.5 rounds the value to a multiple of that unit, and the low bits of the sum are the code.
    const uint32_t subnormal = BitsOf(FloatOf(bounded) + 0.5f) - BitsOf(0.5f);
    const uint32_t finite = bounded < kSmallestNormal ? subnormal : normal;
    const uint32_t special = magnitude > kInfinity ? 0x7E00u : 0x7C00u;
    const uint32_t result = magnitude < kInfinity ? finite : special;
    codes[i] = static_cast<uint16_t>(result | ((bits >> 16) & 0x8000));
  }
}

void FromFp16(const Code16* __restrict codes, float* __restrict values, int64_t n) {
  constexpr uint32_t kFirstNormal = 0x400;
  constexpr uint32_t kFirstSpecial = 0x7C00;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t code = codes[i];
    const uint32_t magnitude = code & 0x7FFF;
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    const uint32_t special = (magnitude << 13) | kInfinity;
    const uint32_t subnormal =
        BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
    const uint32_t finite = magnitude < kFirstNormal ? subnormal : normal;
    const uint32_t result = magnitude < kFirstSpecial ? finite : special;
    values[i] = FloatOf(result | ((code & 0x8000) << 16));
  }
}

bool AllBelow16(const Code16* codes, uint16_t limit, int64_t n) {
  uint16_t beyond = 0;
  for (int64_t i = 0; i < n; ++i) beyond |= (codes[i] & 0x7FFF) >= limit ? 1 : 0;
  return beyond == 0;
}

uint32_t MaxMagnitude(const float* values, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = BitsOf(values[i]) & kMagnitude;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

int64_t CountAtLeast(const float* values, uint32_t least, int64_t n) {
  int32_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += (BitsOf(values[i]) & kMagnitude) >= least ? 1 : 0;
  return count;
}

void MarkAtLeast(const float* __restrict values, uint32_t least, uint8_t* __restrict marks,
                 int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    marks[i] = (BitsOf(values[i]) & kMagnitude) >= least ? 1 : 0;
  }
}

// Rounds `quotient` up if rounding it down would lose more than `most_lost`. Otherwise rounds it
// down.
inline int8_t CodeOf(float quotient, float most_lost, int32_t largest_code) {
  const int32_t toward_zero = static_cast<int32_t>(quotient);
  const int32_t down = toward_zero - (quotient < static_cast<float>(toward_zero) ? 1 : 0);
  const float lost = quotient - static_cast<float>(down);
  const int32_t rounded = down + (most_lost < lost ? 1 : 0);
  // The quotient of the largest element may be slightly more than largest_code.
  const int32_t bounded = rounded < largest_code ? rounded : largest_code;
  return static_cast<int8_t>(bounded > -largest_code ? bounded : -largest_code);
}

void Quantize(const float* __restrict values, float inverse_scale, const uint32_t* __restrict words,
              int32_t largest_code, int8_t* __restrict codes, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float uniform = static_cast<float>(static_cast<int32_t>(words[i] >> 8)) * 0x1p-24f;
    codes[i] = CodeOf(values[i] * inverse_scale, uniform, largest_code);
  }
}

void QuantizeToNearest(const float* __restrict values, float inverse_scale, int32_t largest_code,
                       int8_t* __restrict codes, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    codes[i] = CodeOf(values[i] * inverse_scale, 0.5f, largest_code);
  }
}

void Dequantize(const int8_t* __restrict codes, float scale, float* __restrict values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(codes[i]) * scale;
}

void PackHalves(const int8_t* __restrict codes, uint8_t* __restrict packed, int64_t n) {
  for (int64_t i = 0; i < n / 2; ++i) {
    packed[i] = static_cast<uint8_t>((codes[2 * i] & 0xF) | (codes[2 * i + 1] << 4));
  }
  if (n % 2 != 0) packed[n / 2] = static_cast<uint8_t>(codes[n - 1] & 0xF);
}

// Returns the value of a two's complement number of four bits.
inline float FromHalf(uint8_t half) { return static_cast<float>((half ^ 8) - 8); }

void DequantizeHalves(const uint8_t* __restrict packed, float scale, float* __restrict values,
                      int64_t n) {
  for (int64_t i = 0; i < n / 2; ++i) {
    values[2 * i] = FromHalf(packed[i] & 0xF) * scale;
    values[2 * i + 1] = FromHalf(packed[i] >> 4) * scale;
  }
  if (n % 2 != 0) values[n - 1] = FromHalf(packed[n / 2] & 0xF) * scale;
}

#if defined(__AVX512F__)
constexpr int kLanes = 8;
#elif defined(__AVX2__)
constexpr int kLanes = 4;
#else
constexpr int kLanes = 2;
#endif

// Holds 32-bit words in 64-bit lanes, where the products of two words fit.
typedef uint64_t Wide __attribute__((vector_size(kLanes * 8)));

inline Wide Product(Wide a, Wide b) {
#if defined(__AVX512F__)
  // Uses the masked form with all lanes set: without a mask, gcc 12 warns of a value that is never
  // read.
  return reinterpret_cast<Wide>(
      _mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Wide>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<Wide>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}

// Writes the words of kLanes Philox blocks, beginning with `first_block`.
inline void PhiloxBlocks(uint64_t key, uint64_t stream, uint64_t first_block, uint32_t* words) {
  constexpr int kRounds = 10;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  constexpr uint64_t kLowWord = 0xFFFFFFFF;
  const Wide multiplier0 = Wide{} + 0xD2511F53;
  const Wide multiplier1 = Wide{} + 0xCD9E8D57;
  Wide index = {};
  for (int lane = 0; lane < kLanes; ++lane) index[lane] = first_block + lane;
  Wide word0 = index & kLowWord;
  Wide word1 = index >> 32;
  Wide word2 = Wide{} + (stream & kLowWord);
  Wide word3 = Wide{} + (stream >> 32);
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const Wide product0 = Product(multiplier0, word0);
    const Wide product1 = Product(multiplier1, word2);
    word0 = (product1 >> 32) ^ word1 ^ key0;
    word1 = product1 & kLowWord;
    word2 = (product0 >> 32) ^ word3 ^ key1;
    word3 = product0 & kLowWord;
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  const Wide first_pair = word0 | (word1 << 32);
  const Wide second_pair = word2 | (word3 << 32);
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t pairs[2] = {first_pair[lane], second_pair[lane]};
    __builtin_memcpy(words + 4 * lane, pairs, sizeof(pairs));
  }
}

void Philox(uint64_t key, uint64_t stream, uint64_t first_block, int64_t num_blocks,
            uint32_t* __restrict words) {
  for (int64_t begin = 0; begin < num_blocks; begin += kLanes) {
    PhiloxBlocks(key, stream, first_block + static_cast<uint64_t>(begin), words + 4 * begin);
  }
}

}  // namespace

Loops MakeLoops() {
  return {.name = LODESTAR_NAME_OF(LODESTAR_ISA),
          .to_bf16 = ToBf16,
          .from_bf16 = FromBf16,
          .to_fp16 = ToFp16,
          .from_fp16 = FromFp16,
          .all_below16 = AllBelow16,
          .max_magnitude = MaxMagnitude,
          .count_at_least = CountAtLeast,
          .mark_at_least = MarkAtLeast,
          .quantize = Quantize,
          .quantize_to_nearest = QuantizeToNearest,
          .dequantize = Dequantize,
          .pack_halves = PackHalves,
          .dequantize_halves = DequantizeHalves,
          .philox = Philox};
}

}  // namespace lodestar::codec::LODESTAR_ISA
