// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/optimizer.h"

#include <cuda_bf16.h>

#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/vector_map.h"

namespace lodestar::cuda {
namespace {

constexpr int kFloatLanes = kVectorLanes<float>;

template <typename Narrow>
struct AdamWOperation {
  float* w;        // [n]
  float* m;        // [n]
  float* v;        // [n]
  const float* g;  // [n]
  Narrow* narrow;  // [n]; null means no narrow copy
  simd::AdamWFactors f;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float weight[kLanes];
    float first[kLanes];
    float second[kLanes];
    float gradient[kLanes];
    Load(weight, w + i);
    Load(first, m + i);
    Load(second, v + i);
    Load(gradient, g + i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      const float scaled = gradient[k] * f.gradient_scale;
      first[k] = fmaf(f.beta1, first[k], scaled * f.one_minus_beta1);
      second[k] = fmaf(f.beta2, second[k], scaled * scaled * f.one_minus_beta2);
      const float denominator = fmaf(sqrtf(second[k]), f.inverse_root_correction2, f.epsilon);
      weight[k] = fmaf(weight[k], -f.decay, weight[k]);
      weight[k] -= first[k] * f.step_size / denominator;
    }
    Store(m + i, first);
    Store(v + i, second);
    Store(w + i, weight);
    if (narrow != nullptr) Store(narrow + i, weight);
  }
};

template <typename Narrow>
struct MomentumOperation {
  float* w;        // [n]
  float* state;    // [n]; null means plain SGD
  const float* g;  // [n]
  Narrow* narrow;  // [n]; null means no narrow copy
  simd::MomentumFactors f;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float weight[kLanes];
    float update[kLanes];
    Load(weight, w + i);
    Load(update, g + i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) update[k] *= f.gradient_scale;
    if (state != nullptr) {
      float velocity[kLanes];
      Load(velocity, state + i);
#pragma unroll
      for (int k = 0; k < kLanes; ++k) {
        velocity[k] = fmaf(f.momentum, velocity[k], update[k]);
        update[k] = f.nesterov ? fmaf(f.momentum, velocity[k], update[k]) : velocity[k];
      }
      Store(state + i, velocity);
    }
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      weight[k] = fmaf(weight[k], -f.decay, weight[k]);
      weight[k] = fmaf(update[k], -f.learning_rate, weight[k]);
    }
    Store(w + i, weight);
    if (narrow != nullptr) Store(narrow + i, weight);
  }
};

}  // namespace

template <typename Narrow>
cudaError_t AdamW(float* weights, float* first_moment, float* second_moment, const float* gradient,
                  Narrow* narrow, int64_t n, const simd::AdamWFactors& factors,
                  cudaStream_t stream) {
  return MapVectors<kFloatLanes>(
      AdamWOperation<Narrow>{weights, first_moment, second_moment, gradient, narrow, factors}, n,
      AreVectorsAligned(weights, first_moment, second_moment, gradient, narrow), stream);
}

template <typename Narrow>
cudaError_t Momentum(float* weights, float* state, const float* gradient, Narrow* narrow, int64_t n,
                     const simd::MomentumFactors& factors, cudaStream_t stream) {
  return MapVectors<kFloatLanes>(
      MomentumOperation<Narrow>{weights, state, gradient, narrow, factors}, n,
      AreVectorsAligned(weights, state, gradient, narrow), stream);
}

template cudaError_t AdamW(float*, float*, float*, const float*, float*, int64_t,
                           const simd::AdamWFactors&, cudaStream_t);
template cudaError_t AdamW(float*, float*, float*, const float*, __nv_bfloat16*, int64_t,
                           const simd::AdamWFactors&, cudaStream_t);
template cudaError_t Momentum(float*, float*, const float*, float*, int64_t,
                              const simd::MomentumFactors&, cudaStream_t);
template cudaError_t Momentum(float*, float*, const float*, __nv_bfloat16*, int64_t,
                              const simd::MomentumFactors&, cudaStream_t);

}  // namespace lodestar::cuda
