// Attention in fp32 arithmetic: any type, head width and device. Tiled like the version for tensor
// cores, so that the T x T scores are never written to memory here either.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/attention_call.h"

namespace lodestar::cuda {

// T: float, __nv_bfloat16.
template <typename T>
cudaError_t FloatAttentionForward(const AttentionCall<T>& call, cudaStream_t stream);
// `delta` must have been computed.
template <typename T>
cudaError_t FloatAttentionBackward(const AttentionCall<T>& call, cudaStream_t stream);

// delta = dy . y per query and head, which both versions of the backward pass read.
template <typename T>
cudaError_t AttentionDelta(const AttentionCall<T>& call, cudaStream_t stream);

}  // namespace lodestar::cuda
