// Sums of token and position embeddings, and their gradient; see Device::EmbedForward and
// Device::EmbedBackward.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::cuda {

// y, dy [rows, width]; tokens [rows]; token_table, dtoken_table [vocabulary, width];
// position_table, dposition_table [context_tokens, width]. T: float, __nv_bfloat16; computed in
// fp32.

// A token outside the vocabulary, which a kernel cannot
// report, gives a row of NaN.
template <typename T>
cudaError_t EmbedForward(T* y, const int32_t* tokens, const T* token_table, const T* position_table,
                         int64_t rows, int64_t context_tokens, int64_t width, int64_t vocabulary,
                         cudaStream_t stream);

// Device memory, 16-byte aligned.
size_t EmbedBackwardWorkspaceBytes(int64_t rows, int64_t width);
// Adds into both tables (fp32), in an order that depends on the tokens only. rows < 2^30. A token
// outside the vocabulary is left out of dtoken_table.
template <typename T>
cudaError_t EmbedBackward(float* dtoken_table, float* dposition_table, const T* dy,
                          const int32_t* tokens, int64_t rows, int64_t context_tokens,
                          int64_t width, int64_t vocabulary, void* workspace, cudaStream_t stream);

}  // namespace lodestar::cuda
