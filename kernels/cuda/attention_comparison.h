// SPDX-License-Identifier: Apache-2.0

// Compares a library's attention with the attention of our kernels, for the first and last sample
// of a batch. This detects a library whose results are wrong.
//
// The library and our kernels round products, sums and results to bf16 in different orders. A row
// has the values of one head and one token. These differences are allowed:
// - A row may differ by 2 % of its norm. There are some three roundings, each with an error of at
//   most 2^-8 of the value.
// - If the terms of a row's sum cancel, its norm is small. The limit is then 2 % of the typical
//   norm of the tensor's rows.
// - For rows of dq and dk, the rounding of the scores' gradient is added to the limit. If the terms
//   of all rows of dq or dk cancel, they consist only of that rounding.
// - log_sum_exp is fp32 on both sides. It may differ by 1e-3, or by 1e-3 of its value if the value
//   is above 1.
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

// One sample in host memory. Matrices have the bits of bf16 numbers. Tensors that a pass does not
// use are empty.
struct AttentionSample {
  std::vector<uint16_t> qkv;       // [tokens, 3, heads, head_width]
  std::vector<uint16_t> y;         // [tokens, heads, head_width]
  std::vector<float> log_sum_exp;  // [heads, tokens]
  std::vector<uint16_t> dy;        // [tokens, heads, head_width]
  std::vector<uint16_t> dqkv;      // [tokens, 3, heads, head_width]
};

// Compares the outputs of `library` with those of `own`. In a backward pass, `own` also has the
// inputs. `shape` is the shape of one sample. Returns kUndecided if the matrices of `own` are not
// finite or are all zeros. For example, gradients are zero if dy is zero.
Comparison CompareAttention(AttentionPass pass, const kernels::AttentionShape& shape,
                            const AttentionSample& library, const AttentionSample& own);

// Runs our kernels on the first and the last sample of the batch. Compares their results with the
// library's outputs in `tensors`. Our kernels write only to scratch memory, not to these outputs.
// Blocks until the stream is idle. Errors: those of `scratch` and of CUDA.
absl::StatusOr<Comparison> CompareWithOwnAttention(
    AttentionPass pass, const kernels::AttentionShape& shape, const AttentionTensors& tensors,
    const CudaAttention& own, absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)> scratch,
    cudaStream_t stream);

}  // namespace lodestar::cuda
