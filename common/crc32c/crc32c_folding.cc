// SPDX-License-Identifier: Apache-2.0

// This file is compiled once per instruction set, which LODESTAR_CRC names. It must not include
// headers with inline functions: the linker might keep the copy that was compiled for the widest
// instruction set.
#include "common/crc32c/crc32c_folding.h"

#include <immintrin.h>

namespace lodestar::crc32c::LODESTAR_CRC {
namespace {

#if defined(__AVX512F__)
using Lanes = __m512i;
constexpr int kAtOnce = 4;
inline Lanes Load(const uint8_t* from) { return _mm512_loadu_si512(from); }
inline void Store(uint8_t* to, Lanes lanes) { _mm512_storeu_si512(to, lanes); }
inline void Stream(uint8_t* to, Lanes lanes) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), lanes);
}
inline Lanes Xor(Lanes a, Lanes b) { return _mm512_xor_si512(a, b); }
inline Lanes OfLowest(uint32_t value) {
  return _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int32_t>(value)));
}
inline Lanes InEach(FoldFactors factors) {
  const auto low = static_cast<int64_t>(factors.low);
  const auto high = static_cast<int64_t>(factors.high);
  return _mm512_set_epi64(high, low, high, low, high, low, high, low);
}
inline Lanes Moved(Lanes lanes, Lanes factors, Lanes next) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lanes, factors, 0x00),
                                   _mm512_clmulepi64_epi128(lanes, factors, 0x11), next,
                                   kXorOfThree);
}
#elif defined(__VPCLMULQDQ__)
using Lanes = __m256i;
constexpr int kAtOnce = 8;
inline Lanes Load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline void Store(uint8_t* to, Lanes lanes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), lanes);
}
inline void Stream(uint8_t* to, Lanes lanes) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), lanes);
}
inline Lanes Xor(Lanes a, Lanes b) { return _mm256_xor_si256(a, b); }
inline Lanes OfLowest(uint32_t value) {
  return _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int32_t>(value)));
}
inline Lanes InEach(FoldFactors factors) {
  return _mm256_broadcastsi128_si256(
      _mm_set_epi64x(static_cast<int64_t>(factors.high), static_cast<int64_t>(factors.low)));
}
inline Lanes Moved(Lanes lanes, Lanes factors, Lanes next) {
  return Xor(Xor(_mm256_clmulepi64_epi128(lanes, factors, 0x00),
                 _mm256_clmulepi64_epi128(lanes, factors, 0x11)),
             next);
}
#else
using Lanes = __m128i;
constexpr int kAtOnce = 8;
inline Lanes Load(const uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline void Store(uint8_t* to, Lanes lanes) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), lanes);
}
inline void Stream(uint8_t* to, Lanes lanes) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), lanes);
}
inline Lanes Xor(Lanes a, Lanes b) { return _mm_xor_si128(a, b); }
inline Lanes OfLowest(uint32_t value) { return _mm_cvtsi32_si128(static_cast<int32_t>(value)); }
inline Lanes InEach(FoldFactors factors) {
  return _mm_set_epi64x(static_cast<int64_t>(factors.high), static_cast<int64_t>(factors.low));
}
inline Lanes Moved(Lanes lanes, Lanes factors, Lanes next) {
  return Xor(
      Xor(_mm_clmulepi64_si128(lanes, factors, 0x00), _mm_clmulepi64_si128(lanes, factors, 0x11)),
      next);
}
#endif

constexpr size_t kStepBytes = kAtOnce * sizeof(Lanes);
static_assert(kStepBytes <= kMostStepBytes && sizeof(Lanes) <= kStreamAlignment);

enum class Copy { kNone, kCached, kStreamed };

template <Copy kCopy>
inline Lanes Take(const uint8_t* data, uint8_t* copy) {
  Lanes lanes = Load(data);
  if constexpr (kCopy != Copy::kNone) {
    // Keeps the compiler from loading the bytes twice. The stored bytes must be those that the
    // checksum is computed from.
    asm volatile("" : "+v"(lanes));
    if constexpr (kCopy == Copy::kStreamed) {
      Stream(copy, lanes);
    } else {
      Store(copy, lanes);
    }
  }
  return lanes;
}

template <Copy kCopy>
void FoldAll(uint32_t state, FoldFactors factors, const uint8_t* data, size_t size, uint8_t* copy,
             uint8_t* folded) {
  constexpr size_t kBytes = sizeof(Lanes);
  const Lanes moving = InEach(factors);
  Lanes lanes[kAtOnce];
  for (int i = 0; i < kAtOnce; ++i) lanes[i] = Take<kCopy>(data + i * kBytes, copy + i * kBytes);
  lanes[0] = Xor(lanes[0], OfLowest(state));
  for (size_t done = kStepBytes; done < size; done += kStepBytes) {
    for (int i = 0; i < kAtOnce; ++i) {
      const size_t at = done + i * kBytes;
      lanes[i] = Moved(lanes[i], moving, Take<kCopy>(data + at, copy + at));
    }
  }
  for (int i = 0; i < kAtOnce; ++i) Store(folded + i * kBytes, lanes[i]);
  // Other threads can rely on streamed stores only after this fence.
  if constexpr (kCopy == Copy::kStreamed) _mm_sfence();
}

void Fold(uint32_t state, FoldFactors factors, const uint8_t* data, size_t size, uint8_t* copy,
          bool streams, uint8_t* folded) {
  if (copy == nullptr) {
    FoldAll<Copy::kNone>(state, factors, data, size, nullptr, folded);
  } else if (streams) {
    FoldAll<Copy::kStreamed>(state, factors, data, size, copy, folded);
  } else {
    FoldAll<Copy::kCached>(state, factors, data, size, copy, folded);
  }
}

}  // namespace

#define LODESTAR_QUOTED(name) #name
#define LODESTAR_NAME(name) LODESTAR_QUOTED(name)
extern const Folding kFolding = {LODESTAR_NAME(LODESTAR_CRC), &Fold, kStepBytes};

}  // namespace lodestar::crc32c::LODESTAR_CRC
