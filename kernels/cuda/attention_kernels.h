// The attention kernels: what they are given, where its parts lie in memory, and the calls that
// queue them. No version writes the tokens x tokens scores to memory. Host and device code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/dropout_mask.h"

namespace lodestar::cuda {

// One call, by value to the kernels. T: float, __nv_bfloat16.
template <typename T>
struct AttentionCall {
  const T* qkv;            // [batch, tokens, 3, heads, width]
  T* y;                    // [batch, tokens, heads, width]
  float* log_sum_exp;      // [batch, heads, tokens], natural logarithm of the scaled scores
  const T* dy = nullptr;   // [batch, tokens, heads, width]; this and the rest: backward only
  T* dqkv = nullptr;       // [batch, tokens, 3, heads, width]
  float* delta = nullptr;  // [batch, heads, tokens], dy . y per query

  int batch, tokens, heads, width;
  float scale;  // 1 / sqrt(width)

  kernels::DropoutMask mask;  // rate 0: off
  uint32_t threshold = 0;     // words below it drop
  float keep_scale = 1.0f;
};

// One (sample, head) of a call: the addresses of its token 0 and the steps between tokens.
struct AttentionHead {
  int64_t query;        // in qkv and dqkv; keys and values follow at +1 and +2 output_step
  int64_t output;       // in y and dy
  int64_t row;          // in log_sum_exp and delta
  int64_t element;      // of the dropout sequence: the probability of (query 0, key 0)
  int64_t qkv_step;     // elements from a token's query to the next token's
  int64_t output_step;  // elements, of y and dy

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

// In fp32 arithmetic: any type, head width and device. T: float, __nv_bfloat16.
template <typename T>
cudaError_t FloatAttentionForward(const AttentionCall<T>& call, cudaStream_t stream);
// `delta` must have been computed, here and below.
template <typename T>
cudaError_t FloatAttentionBackward(const AttentionCall<T>& call, cudaStream_t stream);

// On tensor cores: heads of 64 or 128, sm_80 and later; qkv, y, dy and dqkv at multiples of 16
// bytes.
cudaError_t TensorAttentionForward(const AttentionCall<__nv_bfloat16>& call, cudaStream_t stream);
cudaError_t TensorAttentionBackward(const AttentionCall<__nv_bfloat16>& call, cudaStream_t stream);

// delta = dy . y per query and head, which both versions of the backward pass read.
template <typename T>
cudaError_t AttentionDelta(const AttentionCall<T>& call, cudaStream_t stream);

}  // namespace lodestar::cuda
