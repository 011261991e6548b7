// Compares a library's attention of a batch with that of our kernels, for the first and last sample
// of the batch. Without the comparison, wrong numbers of a library would not be noticed.
//
// A row has the values of one head and one token. The two sides round products, sums and results to
// bf16 in different orders. Each of some three roundings is off by at most 2^-8 of its value, so
// rows may differ by 2 % of the row's norm. If the row's sum cancels, the limit is 2 % of the usual
// norm of the tensor's rows. Rows of dq and dk may differ by the rounding of the scores' gradient
// in addition. If their sums cancel in all rows, it is all that is left. log_sum_exp is fp32 on
// both sides and may differ by 1e-3, or by 1e-3 of its value if that is above 1.
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

// One sample in host memory. Matrices are bits of bf16. Tensors that a pass does not have are
// empty.
struct AttentionSample {
  std::vector<uint16_t> qkv;       // [tokens, 3, heads, head_width]
  std::vector<uint16_t> y;         // [tokens, heads, head_width]
  std::vector<float> log_sum_exp;  // [heads, tokens]
  std::vector<uint16_t> dy;        // [tokens, heads, head_width]
  std::vector<uint16_t> dqkv;      // [tokens, 3, heads, head_width]
};

// Compares the outputs of `library` with those of `own`, which also has the inputs. `shape` is that
// of one sample. Returns kUndecided if the matrices of `own` are not finite, or are all zeros, as
// the gradients are if dy is zero.
Comparison CompareAttention(AttentionPass pass, const kernels::AttentionShape& shape,
                            const AttentionSample& library, const AttentionSample& own);

// Compares the first and the last sample of `tensors`, which has a library's outputs, with the
// results of our kernels. They write only to scratch memory. Blocks until the stream has run.
// Errors: those of `scratch` and of CUDA.
absl::StatusOr<Comparison> CompareWithOwnAttention(
    AttentionPass pass, const kernels::AttentionShape& shape, const AttentionTensors& tensors,
    const CudaAttention& own, absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)> scratch,
    cudaStream_t stream);

}  // namespace lodestar::cuda
