// SPDX-License-Identifier: Apache-2.0

// Optimizer updates of fp32 vectors, as Device::AdamWUpdate() and Device::MomentumUpdate() describe
// them. Each needs one pass over memory. All vectors are [n]. For the factors see
// kernels/vectors/optimizer_factors.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/simd/loops.h"

namespace lodestar::cuda {

// Narrow is float or __nv_bfloat16. If `narrow` is not null, it is set to the new weights, rounded
// to nearest.
template <typename Narrow>
cudaError_t AdamW(float* weights, float* first_moment, float* second_moment, const float* gradient,
                  Narrow* narrow, int64_t n, const simd::AdamWFactors& factors,
                  cudaStream_t stream);

// A null `state` means plain SGD.
template <typename Narrow>
cudaError_t Momentum(float* weights, float* state, const float* gradient, Narrow* narrow, int64_t n,
                     const simd::MomentumFactors& factors, cudaStream_t stream);

}  // namespace lodestar::cuda
