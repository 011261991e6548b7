// Optimizer updates of fp32 vectors, one pass over memory; see Device::AdamWUpdate and
// Device::MomentumUpdate. All vectors are [n]. Factors: kernels/vectors/optimizer_factors.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/simd/loops.h"

namespace lodestar::cuda {

// Narrow: float, __nv_bfloat16; `narrow` (may be null) gets the new weights, rounded to nearest.
template <typename Narrow>
cudaError_t AdamW(float* weights, float* first_moment, float* second_moment, const float* gradient,
                  Narrow* narrow, int64_t n, const simd::AdamWFactors& factors,
                  cudaStream_t stream);

// `state` may be null: plain SGD.
template <typename Narrow>
cudaError_t Momentum(float* weights, float* state, const float* gradient, Narrow* narrow, int64_t n,
                     const simd::MomentumFactors& factors, cudaStream_t stream);

}  // namespace lodestar::cuda
