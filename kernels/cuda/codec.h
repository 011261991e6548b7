// SPDX-License-Identifier: Apache-2.0

// Encodes vectors on the card, with the same bytes as kernels/codec. The functions are fastest with
// 16-byte aligned addresses.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

// The vector to be encoded: scale * values + residual.
struct CodecInput {
  const float* values;  // [n]
  float scale;
  const float* residual;  // [n]; null means no residual
  int64_t n;
};

// Encode the input to codes [n].
cudaError_t EncodeBf16(uint16_t* codes, const CodecInput& input, cudaStream_t stream);
cudaError_t EncodeFp16(uint16_t* codes, const CodecInput& input, cudaStream_t stream);

// Number of elements of an int8 block. The last block of a vector may be shorter.
inline constexpr int64_t kInt8BlockElements = 256;
constexpr int64_t Int8EncodedBytes(int64_t n) {
  return n + 4 * ((n + kInt8BlockElements - 1) / kInt8BlockElements);
}
// Encodes to blocks of [scale: fp32 | codes]. `encoded` has Int8EncodedBytes(n) bytes and is 4-byte
// aligned.
cudaError_t EncodeInt8(void* encoded, const CodecInput& input, const kernels::Rounding& rounding,
                       cudaStream_t stream);

inline constexpr int64_t kInt4BlockElements = 128;
constexpr int64_t Int4EncodedBytes(int64_t n) {
  return (n + 1) / 2 + 2 * ((n + kInt4BlockElements - 1) / kInt4BlockElements);
}
// Encodes to blocks of [scale: bf16 | two codes in each byte]. `encoded` has Int4EncodedBytes(n)
// bytes and is 2-byte aligned.
cudaError_t EncodeInt4(void* encoded, const CodecInput& input, const kernels::Rounding& rounding,
                       cudaStream_t stream);

// Compute the error of the encoding: lost [n] = decay * (input - decoded). `lost` may be
// input.residual.
cudaError_t LostInBf16(float* lost, const CodecInput& input, const uint16_t* codes, float decay,
                       cudaStream_t stream);
cudaError_t LostInFp16(float* lost, const CodecInput& input, const uint16_t* codes, float decay,
                       cudaStream_t stream);
cudaError_t LostInInt8(float* lost, const CodecInput& input, const void* encoded, float decay,
                       cudaStream_t stream);
cudaError_t LostInInt4(float* lost, const CodecInput& input, const void* encoded, float decay,
                       cudaStream_t stream);

}  // namespace lodestar::cuda
