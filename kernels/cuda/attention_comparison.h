// SPDX-License-Identifier: Apache-2.0

// Compares a library's attention with that of our kernels, for the first and last sample of a
// batch. Without this comparison, wrong results of a library would not be noticed.
//
// A row has the values of one head and one token. The two sides round products, sums and results to
// bf16 in different orders. There are some three roundings, each wrong by at most 2^-8 of the
// value, so rows may differ by 2 % of the row's norm. If the sum of a row cancels, the limit is 2 %
// of the usual norm of the tensor's rows. Rows of dq and dk may also differ by the rounding of the
// scores' gradient. If the sums of all rows of dq or dk cancel, only that rounding is left in them.
// log_sum_exp is fp32 on both sides and may differ by 1e-3, or by 1e-3 of its value if the value is
// above 1.
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

// Compares the outputs of `library` with those of `own`. `own` also has the inputs. `shape` is the
// shape of one sample. Returns kUndecided if the matrices of `own` are not finite or are all zeros.
// Gradients are all zeros if dy is zero.
Comparison CompareAttention(AttentionPass pass, const kernels::AttentionShape& shape,
                            const AttentionSample& library, const AttentionSample& own);

// Computes the first and the last sample with our kernels and compares the results with the
// library's outputs in `tensors`. Our kernels write only to scratch memory, and not to the outputs
// in `tensors`. Blocks until the stream has run. Errors: those of `scratch` and of CUDA.
absl::StatusOr<Comparison> CompareWithOwnAttention(
    AttentionPass pass, const kernels::AttentionShape& shape, const AttentionTensors& tensors,
    const CudaAttention& own, absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)> scratch,
    cudaStream_t stream);

}  // namespace lodestar::cuda
