// SPDX-License-Identifier: Apache-2.0

// Causal self-attention of the CUDA device. Chooses the version of the kernels for a call, and
// queues them. Needs memory in proportion to the number of tokens, not to its square.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/buf.h"
#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

enum class AttentionVersion : uint8_t {
  kFloat,  // fp32 arithmetic; serves any dtype, head width and card
  // Serves bf16 with a head width of 64 or 128 on sm_80 and later, if tensors begin at multiples of
  // 16 bytes.
  kTensorCore,
};

class CudaAttention {
 public:
  // `compute_capability` is 10 * major version + minor version of the card of the streams.
  explicit CudaAttention(int compute_capability) : compute_capability_(compute_capability) {}

  AttentionVersion VersionFor(kernels::DType dtype, int64_t head_width) const;

  // Returns Device::AttentionWorkspaceElements() for `dtype`.
  static int64_t WorkspaceElements(const kernels::AttentionShape& shape, kernels::DType dtype);

  // Queue Device::AttentionForward() and AttentionBackward(). Tensors are in f32 or bf16,
  // log_sum_exp in f32. Equal arguments give equal bits. Errors: those of CUDA's launches;
  // cudaErrorInvalidConfiguration (the call needs more blocks than a grid can have).
  cudaError_t Forward(kernels::Buf y, kernels::Buf log_sum_exp, kernels::Buf qkv,
                      const kernels::AttentionShape& shape, cudaStream_t stream) const;
  cudaError_t Backward(kernels::Buf dqkv, kernels::Buf dy, kernels::Buf y, kernels::Buf log_sum_exp,
                       kernels::Buf qkv, kernels::Buf workspace,
                       const kernels::AttentionShape& shape, cudaStream_t stream) const;

 private:
  int compute_capability_;
};

}  // namespace lodestar::cuda
