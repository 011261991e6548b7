// SPDX-License-Identifier: Apache-2.0

// Exponentials and quotients, for device code. For results that are rounded to bf16, they use the
// hardware's functions, which are faster and less exact.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <type_traits>

namespace lodestar::cuda {

// Returns e^x. For results in fp32, the error is at most 2 ulp. For results in bf16, the hardware's
// function is used, whose error is at most 2 + |1.2 x| ulp of fp32. Rounding to bf16 hides this
// error.
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
