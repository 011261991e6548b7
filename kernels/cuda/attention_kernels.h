// SPDX-License-Identifier: Apache-2.0

// The attention kernels: their arguments, the offsets of a head in the tensors, and the functions
// that queue the kernels. The scores (tokens x tokens) are never written to memory. For host and
// device code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/dropout_mask.h"

namespace lodestar::cuda {

// Arguments of one call, passed to kernels by value. T is float or __nv_bfloat16.
template <typename T>
struct AttentionCall {
  const T* qkv;  // [batch, tokens, 3, heads, width]
  T* y;          // [batch, tokens, heads, width]
  // The natural logarithm of the sum of exponentials of scaled scores.
  float* log_sum_exp;  // [batch, heads, tokens]
  // Only the backward pass uses the three tensors below.
  const T* dy = nullptr;   // [batch, tokens, heads, width]
  T* dqkv = nullptr;       // [batch, tokens, 3, heads, width]
  float* delta = nullptr;  // [batch, heads, tokens]: the sum over the head's columns of dy * y

  int batch, tokens, heads, width;
  float scale;  // 1 / sqrt(width)

  kernels::DropoutMask mask;  // rate 0 means no dropout
  uint32_t threshold = 0;     // a random word below this drops a probability
  float keep_scale = 1.0f;
};

// Offsets of token 0 of one sample and head, and the steps between tokens, in elements.
struct AttentionHead {
  // Offset of the query in qkv and dqkv. The key lies output_step elements behind the query, and
  // the value 2 * output_step elements behind it.
  int64_t query;
  int64_t output;  // offset in y and dy
  int64_t row;     // offset in log_sum_exp and delta
  // Index of the probability of (query 0, key 0) in the dropout sequence.
  int64_t element;
  int64_t qkv_step;     // elements from a token to the next, in qkv and dqkv
  int64_t output_step;  // elements from a token to the next, in y and dy

  template <typename T>
  __host__ __device__ AttentionHead(const AttentionCall<T>& call, int64_t index)
      : qkv_step(int64_t{3} * call.heads * call.width),
        output_step(int64_t{1} * call.heads * call.width) {
    const int64_t sample = index / call.heads;
    const int64_t within = (index - sample * call.heads) * call.width;
    query = sample * call.tokens * qkv_step + within;
    output = sample * call.tokens * output_step + within;
    row = index * call.tokens;
    element = call.mask.first_element + row * call.tokens;
  }
};

// Queue attention in fp32 arithmetic, for any head width and any card. T is float or __nv_bfloat16.
template <typename T>
cudaError_t FloatAttentionForward(const AttentionCall<T>& call, cudaStream_t stream);
// FloatAttentionBackward() and TensorAttentionBackward() read `delta`, which the caller must have
// computed before.
template <typename T>
cudaError_t FloatAttentionBackward(const AttentionCall<T>& call, cudaStream_t stream);

// Queue attention on tensor cores, for heads of 64 or 128 on sm_80 and later. qkv, y, dy and dqkv
// must begin at multiples of 16 bytes.
cudaError_t TensorAttentionForward(const AttentionCall<__nv_bfloat16>& call, cudaStream_t stream);
cudaError_t TensorAttentionBackward(const AttentionCall<__nv_bfloat16>& call, cudaStream_t stream);

// Computes delta = dy . y per query and head, for both versions of the backward pass.
template <typename T>
cudaError_t AttentionDelta(const AttentionCall<T>& call, cudaStream_t stream);

}  // namespace lodestar::cuda
