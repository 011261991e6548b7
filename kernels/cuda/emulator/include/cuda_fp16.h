// SPDX-License-Identifier: Apache-2.0

// IEEE half precision on the host: the part of NVIDIA's header that kernels/cuda uses. There is no
// arithmetic, because kernels compute in fp32.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cuda/emulator/vector_types.h"

// NOLINTBEGIN: the names are CUDA's.
struct __half {
  __half() = default;
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};

inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) {
  __half result;
  result.bits = bits;
  return result;
}
inline __half __float2half_rn(float x) {
  return __ushort_as_half(std::bit_cast<uint16_t>(static_cast<_Float16>(x)));
}
inline __half __float2half(float x) { return __float2half_rn(x); }
inline float __half2float(__half x) { return static_cast<float>(std::bit_cast<_Float16>(x.bits)); }
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline float2 __half22float2(__half2 x) { return {__half2float(x.x), __half2float(x.y)}; }
// NOLINTEND
