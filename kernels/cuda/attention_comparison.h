// Compares what a library has made of a batch's attention with what our kernels make of its first
// and last sample. A library whose numbers are wrong would else train in silence.
//
// A row is what one head has of one token. Both sides round products, sums and results to bf16 in
// another order: each of some three roundings is off by at most 2^-8 of what it rounds, so rows
// differ by less than 2 % of the row, or of the tensor's usual row where this row's sum cancels.
// The log_sum_exp is in fp32 on both sides and differs by less than 1e-3.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_library.h"
#include "kernels/cuda/fusion_choice.h"

namespace lodestar::cuda {

// One sample in host memory; matrices as bits of bf16. What a pass does not have is empty.
struct AttentionSample {
  std::vector<uint16_t> qkv;       // [tokens, 3, heads, head_width]
  std::vector<uint16_t> y;         // [tokens, heads, head_width]
  std::vector<float> log_sum_exp;  // [heads, tokens]
  std::vector<uint16_t> dy;        // [tokens, heads, head_width]
  std::vector<uint16_t> dqkv;      // [tokens, 3, heads, head_width]
};

// Compares the outputs of `library` with those of `own`, which also has the inputs. `shape`: of one
// sample. Undecided if all matrices of `own` are zeros, as gradients of a dy of zeros are, or if
// they are not finite.
Comparison CompareAttention(AttentionPass pass, const AttentionShape& shape,
                            const AttentionSample& library, const AttentionSample& own);

// The same for the first and the last sample of `tensors`, with a library's outputs. Our kernels
// write to scratch memory only. Waits for the stream. Errors: no scratch memory; those of CUDA.
absl::StatusOr<Comparison> CompareWithOwnAttention(
    AttentionPass pass, const AttentionShape& shape, const AttentionTensors& tensors,
    const CudaAttention& own, absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)> scratch,
    cudaStream_t stream);

}  // namespace lodestar::cuda
