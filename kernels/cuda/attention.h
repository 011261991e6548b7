// Causal self-attention of the CUDA device: which version of the kernels serves a call, and the
// calls. Memory grows with tokens, never with their square.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/buf.h"
#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

enum class AttentionVersion : uint8_t {
  kFloat,       // fp32 arithmetic; any type, head width and card
  kTensorCore,  // bf16, heads of 64 or 128, sm_80 and later, memory at multiples of 16 bytes
};

class CudaAttention {
 public:
  // Ten times the major plus the minor version, of the card that the streams belong to.
  explicit CudaAttention(int compute_capability) : compute_capability_(compute_capability) {}

  AttentionVersion VersionFor(kernels::DType dtype, int64_t head_width) const;

  // As Device::AttentionWorkspaceElements() for `dtype`.
  static int64_t WorkspaceElements(const kernels::AttentionShape& shape, kernels::DType dtype);

  // As the Device operations; f32 or bf16, log_sum_exp f32. Results depend on the arguments only,
  // to the bit. Errors: what CUDA says to the launches; cudaErrorInvalidConfiguration for more
  // tiles of tokens than a grid has blocks.
  cudaError_t Forward(kernels::Buf y, kernels::Buf log_sum_exp, kernels::Buf qkv,
                      const kernels::AttentionShape& shape, cudaStream_t stream) const;
  cudaError_t Backward(kernels::Buf dqkv, kernels::Buf dy, kernels::Buf y, kernels::Buf log_sum_exp,
                       kernels::Buf qkv, kernels::Buf workspace,
                       const kernels::AttentionShape& shape, cudaStream_t stream) const;

 private:
  int compute_capability_;
};

}  // namespace lodestar::cuda
