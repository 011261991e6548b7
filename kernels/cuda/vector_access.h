// SPDX-License-Identifier: Apache-2.0

// Loads and stores of up to 16 bytes at a time, and arithmetic in fp32. For device code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar::cuda {

// Number of elements in 16 bytes.
template <typename T>
inline constexpr int kVectorLanes = 16 / static_cast<int>(sizeof(T));

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(double x) { return static_cast<float>(x); }
__device__ inline float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float ToFloat(__half x) { return __half2float(x); }

// Returns x in the type T, rounded to nearest even.
template <typename T>
__device__ inline T FromFloat(float x) {
  return static_cast<T>(x);
}
template <>
__device__ inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}

template <typename T, int kLanes>
struct alignas(kLanes * sizeof(T)) Lanes {
  T at[kLanes];
};

// Loads kLanes elements by one instruction. The address must be a multiple of the size of all
// kLanes elements.
template <int kLanes, typename T>
__device__ inline void Load(float (&values)[kLanes], const T* p) {
  const Lanes<T, kLanes> lanes = *reinterpret_cast<const Lanes<T, kLanes>*>(p);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) values[k] = ToFloat(lanes.at[k]);
}

template <int kLanes, typename T>
__device__ inline void Store(T* p, const float (&values)[kLanes]) {
  Lanes<T, kLanes> lanes;
#pragma unroll
  for (int k = 0; k < kLanes; ++k) lanes.at[k] = FromFloat<T>(values[k]);
  *reinterpret_cast<Lanes<T, kLanes>*>(p) = lanes;
}

// Returns true if all addresses are multiples of 16 bytes, which vector accesses need. Null counts
// as aligned. For host code.
template <typename... Pointers>
inline bool AreVectorsAligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

inline constexpr int64_t CeilDiv(int64_t n, int64_t divisor) { return (n + divisor - 1) / divisor; }

// Returns n / divisor for n, divisor >= 0. Uses 32 bits if possible, because a 64-bit division
// takes about a hundred instructions.
__device__ inline int64_t Quotient(int64_t n, int64_t divisor) {
  if ((n | divisor) >> 32 != 0) return n / divisor;
  return static_cast<uint32_t>(n) / static_cast<uint32_t>(divisor);
}

__device__ inline int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace lodestar::cuda
