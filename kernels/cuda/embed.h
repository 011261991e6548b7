// SPDX-License-Identifier: Apache-2.0

// Sums of token and position embeddings, and their gradient, as Device::EmbedForward() and
// Device::EmbedBackward() describe them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::cuda {

// Shapes: y, dy [rows, width]; tokens [rows]; token_table, dtoken_table [vocabulary, width];
// position_table, dposition_table [context_tokens, width]. T is float or __nv_bfloat16. Results are
// computed in fp32.

// A token outside the vocabulary gives a row of NaN, because a kernel cannot report an error.
template <typename T>
cudaError_t EmbedForward(T* y, const int32_t* tokens, const T* token_table, const T* position_table,
                         int64_t rows, int64_t context_tokens, int64_t width, int64_t vocabulary,
                         cudaStream_t stream);

// Returns the size of the workspace, which is device memory, 16-byte aligned.
size_t EmbedBackwardWorkspaceBytes(int64_t rows, int64_t width);
// Adds the gradients to both tables (fp32), in an order that depends only on the tokens. Requires:
// rows < 2^30. Tokens outside the vocabulary are not added to dtoken_table.
template <typename T>
cudaError_t EmbedBackward(float* dtoken_table, float* dposition_table, const T* dy,
                          const int32_t* tokens, int64_t rows, int64_t context_tokens,
                          int64_t width, int64_t vocabulary, void* workspace, cudaStream_t stream);

}  // namespace lodestar::cuda
