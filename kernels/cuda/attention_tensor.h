// Attention on tensor cores: bf16, heads of 64 or 128, sm_80 and later. The T x T scores are never
// written to memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/attention_call.h"

namespace lodestar::cuda {

// qkv, y, dy and dqkv at multiples of 16 bytes.
cudaError_t TensorAttentionForward(const AttentionCall<__nv_bfloat16>& call, cudaStream_t stream);
// `delta` must have been computed.
cudaError_t TensorAttentionBackward(const AttentionCall<__nv_bfloat16>& call, cudaStream_t stream);

}  // namespace lodestar::cuda
