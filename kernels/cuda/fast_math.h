// Exponentials and quotients that are as exact as the type they are rounded to. For device code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <type_traits>

namespace lodestar::cuda {

// For results in fp32: 2 ulp. For bf16 the hardware's: 2 + |1.2 x| ulp of fp32, which rounding to
// 8 bits hides.
template <typename T>
__device__ inline float ExpFor(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __expf(x);
  } else {
    return expf(x);
  }
}

template <typename T>
__device__ inline float QuotientFor(float numerator, float denominator) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __fdividef(numerator, denominator);
  } else {
    return numerator / denominator;
  }
}

}  // namespace lodestar::cuda
