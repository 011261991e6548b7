// SPDX-License-Identifier: Apache-2.0

// Defines the vector type of one instruction set and the functions on it. Only the sources of
// //kernels/simd:loops_* include this file. They are compiled once per instruction set, whose name
// is LODESTAR_ISA, and everything is in the namespace of that name. Do not include this file
// together with library headers that have inline functions: the linker might use the version of
// such a function that was compiled for the widest instruction set.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lodestar::simd::LODESTAR_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));

inline Vec Load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
inline void Store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }

// Stores a vector without reading its cache line, by an instruction that bypasses the caches. `p`
// must be aligned to a vector. Other threads see the store only after StreamFence().
inline void Stream(float* p, Vec v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(p, reinterpret_cast<__m512>(v));
#elif defined(__AVX2__)
  _mm256_stream_ps(p, reinterpret_cast<__m256>(v));
#else
  _mm_stream_ps(p, reinterpret_cast<__m128>(v));
#endif
}
inline void StreamFence() { _mm_sfence(); }

// Loads the first `n` < kLanes elements. Sets the other lanes to `fill`.
inline Vec LoadPart(const float* p, int64_t n, float fill = 0.0f) {
#if defined(__AVX512F__)
  const __mmask16 mask = static_cast<__mmask16>((1u << n) - 1u);
  return reinterpret_cast<Vec>(_mm512_mask_loadu_ps(_mm512_set1_ps(fill), mask, p));
#else
  Vec v;
  for (int64_t i = 0; i < kLanes; ++i) v[i] = i < n ? p[i] : fill;
  return v;
#endif
}
inline void StorePart(float* p, Vec v, int64_t n) {
#if defined(__AVX512F__)
  const __mmask16 mask = static_cast<__mmask16>((1u << n) - 1u);
  _mm512_mask_storeu_ps(p, mask, reinterpret_cast<__m512>(v));
#else
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
}

inline Vec Broadcast(float x) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_set1_ps(x));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_set1_ps(x));
#else
  return reinterpret_cast<Vec>(_mm_set1_ps(x));
#endif
}

inline Vec Select(IntVec condition, Vec yes, Vec no) { return condition ? yes : no; }
// Returns the larger value of each lane. If `b` is NaN, the result is NaN. If only `a` is NaN, the
// result is `b`.
inline Vec Max(Vec a, Vec b) { return a > b ? a : b; }

// Lower() returns the lower of two values, and Higher() the higher. If the values are equal, or are
// zeros of different sign, the result is `b`.
inline Vec Lower(Vec a, Vec b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(
      _mm512_maskz_min_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(
      _mm256_min_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#else
  return reinterpret_cast<Vec>(
      _mm_min_ps(reinterpret_cast<__m128>(a), reinterpret_cast<__m128>(b)));
#endif
}
inline Vec Higher(Vec a, Vec b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(
      _mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(
      _mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#else
  return reinterpret_cast<Vec>(
      _mm_max_ps(reinterpret_cast<__m128>(a), reinterpret_cast<__m128>(b)));
#endif
}

// Returns a * b + c. It is rounded only once if the instruction set has a fused operation. The
// sources are compiled with -ffp-contract=off, so that products are fused only here. So the
// rounding of an expression does not depend on where it is inlined.
inline Vec Fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
  return a * b + c;
#endif
}

inline Vec Sqrt(Vec x) {
#if defined(__AVX512F__)
  // Uses the masked form, because gcc 12 warns about an undefined operand in the form without a
  // mask.
  return reinterpret_cast<Vec>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(x)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#else
  return reinterpret_cast<Vec>(_mm_sqrt_ps(reinterpret_cast<__m128>(x)));
#endif
}

// Returns `v`, with zeros in the lanes from `n` < kLanes on.
inline Vec ZeroFrom(Vec v, int64_t n) {
#if defined(__AVX512F__)
  const __mmask16 mask = static_cast<__mmask16>((1u << n) - 1u);
  return reinterpret_cast<Vec>(_mm512_maskz_mov_ps(mask, reinterpret_cast<__m512>(v)));
#else
  for (int64_t i = n; i < kLanes; ++i) v[i] = 0.0f;
  return v;
#endif
}

// Returns a vector whose lane i is lane i ^ kStep of `v`.
template <int kStep>
inline Vec SwapLanes(Vec v) {
  IntVec from;
  for (int lane = 0; lane < kLanes; ++lane) from[lane] = lane ^ kStep;
  return __builtin_shuffle(v, from);
}

// Adds up all lanes. Always adds the upper half of the lanes to the lower half, so the order is
// fixed.
template <int kStep = kLanes / 2>
inline float SumLanes(Vec v) {
  v += SwapLanes<kStep>(v);
  if constexpr (kStep > 1) return SumLanes<kStep / 2>(v);
  return v[0];
}
template <int kStep = kLanes / 2>
inline float MaxLanes(Vec v) {
  v = Max(v, SwapLanes<kStep>(v));
  if constexpr (kStep > 1) return MaxLanes<kStep / 2>(v);
  return v[0];
}

// Returns e^x as 2^n * p(r) with |r| <= ln(2)/2, where p is a Taylor polynomial of degree 6. The
// error is below 2 ulp on [-87.3, 88.3]. A smaller x counts as -87.3, and a larger one as 88.3. So
// e^-inf is 1e-38, not 0. NaN stays NaN.
inline Vec Exp(Vec x) {
  const Vec low = Broadcast(-87.3f);
  const Vec high = Broadcast(88.3f);
  x = x < low ? low : x;
  x = x > high ? high : x;
  // Adding 1.5 * 2^23 rounds to the nearest integer, which is then in the low bits.
  const Vec magic = Broadcast(12582912.0f);
  const Vec shifted = Fma(x, Broadcast(1.44269504088896341f), magic);
  const Vec n = shifted - magic;
  Vec r =
      // ln 2 is subtracted in two parts; n times the first part is exact
      Fma(n, Broadcast(-0.693145751953125f), x);
  r = Fma(n, Broadcast(-1.42860677e-6f), r);
  Vec p = Fma(r, Broadcast(1.3888889e-3f), Broadcast(8.3333333e-3f));
  p = Fma(p, r, Broadcast(4.1666667e-2f));
  p = Fma(p, r, Broadcast(1.6666667e-1f));
  p = Fma(p, r, Broadcast(0.5f));
  p = Fma(p, r, Broadcast(1.0f));
  p = Fma(p, r, Broadcast(1.0f));
  const IntVec exponent = reinterpret_cast<IntVec>(shifted) << 23;
  return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(p) + exponent);
}

}  // namespace lodestar::simd::LODESTAR_ISA
