// SPDX-License-Identifier: Apache-2.0

// Reads the vector that encoders encode: scale * values + residual. For device code.
//
// The product is rounded before the sum, as on the host. A fused multiply-add would round only once
// and give other bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/codec.h"
#include "kernels/cuda/vector_access.h"

namespace lodestar::cuda {

// Loads kLanes values by accesses of up to 16 bytes. The address must be a multiple of the size of
// an access.
template <int kLanes>
__device__ inline void LoadFloats(float (&values)[kLanes], const float* from) {
  constexpr int kStep = kLanes < kVectorLanes<float> ? kLanes : kVectorLanes<float>;
#pragma unroll
  for (int k = 0; k < kLanes; k += kStep) {
    const auto lanes = *reinterpret_cast<const Lanes<float, kStep>*>(from + k);
#pragma unroll
    for (int lane = 0; lane < kStep; ++lane) values[k + lane] = lanes.at[lane];
  }
}

template <int kLanes>
__device__ inline void StoreFloats(float* to, const float (&values)[kLanes]) {
  constexpr int kStep = kLanes < kVectorLanes<float> ? kLanes : kVectorLanes<float>;
#pragma unroll
  for (int k = 0; k < kLanes; k += kStep) {
    Lanes<float, kStep> lanes;
#pragma unroll
    for (int lane = 0; lane < kStep; ++lane) lanes.at[lane] = values[k + lane];
    *reinterpret_cast<Lanes<float, kStep>*>(to + k) = lanes;
  }
}

// Loads elements [i, i + kLanes) of scale * values + residual.
template <int kLanes>
__device__ inline void LoadSum(float (&sum)[kLanes], const CodecInput& input, int64_t i) {
  LoadFloats(sum, input.values + i);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) sum[k] = __fmul_rn(sum[k], input.scale);
  if (input.residual == nullptr) return;
  float residual[kLanes];
  LoadFloats(residual, input.residual + i);
#pragma unroll
  for (int k = 0; k < kLanes; ++k) sum[k] = __fadd_rn(sum[k], residual[k]);
}

}  // namespace lodestar::cuda
