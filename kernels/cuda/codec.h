// Encodings of vectors for the wire, on the card: the same bytes as kernels/codec makes of them.
// Fastest with 16-byte aligned addresses.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

// What is encoded: scale * values + residual.
struct CodecInput {
  const float* values;  // [n]
  float scale;
  const float* residual;  // [n]; null: none
  int64_t n;
};

// codes [n]
cudaError_t EncodeBf16(uint16_t* codes, const CodecInput& input, cudaStream_t stream);
cudaError_t EncodeFp16(uint16_t* codes, const CodecInput& input, cudaStream_t stream);

// Elements of a block; the last one of a vector may be shorter.
inline constexpr int64_t kInt8BlockElements = 256;
constexpr int64_t Int8EncodedBytes(int64_t n) {
  return n + 4 * ((n + kInt8BlockElements - 1) / kInt8BlockElements);
}
// encoded: Int8EncodedBytes(n), 4-byte aligned; blocks of [scale: fp32 | codes].
cudaError_t EncodeInt8(void* encoded, const CodecInput& input, const kernels::Rounding& rounding,
                       cudaStream_t stream);

inline constexpr int64_t kInt4BlockElements = 128;
constexpr int64_t Int4EncodedBytes(int64_t n) {
  return (n + 1) / 2 + 2 * ((n + kInt4BlockElements - 1) / kInt4BlockElements);
}
// encoded: Int4EncodedBytes(n), 2-byte aligned; blocks of [scale: bf16 | two codes in a byte].
cudaError_t EncodeInt4(void* encoded, const CodecInput& input, const kernels::Rounding& rounding,
                       cudaStream_t stream);

// lost [n] = decay * (input - decoded); it may be input.residual.
cudaError_t LostInBf16(float* lost, const CodecInput& input, const uint16_t* codes, float decay,
                       cudaStream_t stream);
cudaError_t LostInFp16(float* lost, const CodecInput& input, const uint16_t* codes, float decay,
                       cudaStream_t stream);
cudaError_t LostInInt8(float* lost, const CodecInput& input, const void* encoded, float decay,
                       cudaStream_t stream);
cudaError_t LostInInt4(float* lost, const CodecInput& input, const void* encoded, float decay,
                       cudaStream_t stream);

}  // namespace lodestar::cuda
