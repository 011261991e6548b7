// SPDX-License-Identifier: Apache-2.0

// bfloat16 on the host: the part of NVIDIA's header that kernels/cuda uses. There are no implicit
// conversions and no arithmetic, because kernels compute in fp32.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/emulator/vector_types.h"

// NOLINTBEGIN: the names are CUDA's.
struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 result;
  result.bits = bits;
  return result;
}
// Rounds to the nearest bf16, ties to even.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  if (std::isnan(x)) return __ushort_as_bfloat16(0x7fff);
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return __ushort_as_bfloat16(
      static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16));
}
inline __nv_bfloat16 __float2bfloat16(float x) { return __float2bfloat16_rn(x); }
inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 x) { return __floats2bfloat162_rn(x.x, x.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 x) {
  return {__bfloat162float(x.x), __bfloat162float(x.y)};
}
inline float __low2float(__nv_bfloat162 x) { return __bfloat162float(x.x); }
inline float __high2float(__nv_bfloat162 x) { return __bfloat162float(x.y); }
// NOLINTEND
