// Encodings of vectors for the wire, on the card: the same bytes as kernels/codec makes of them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::cuda {

// What is encoded: scale * values + residual, without a residual (null) scale * values. What the
// encoding loses becomes the new residual.
struct CodecInput {
  const float* values;
  float scale;
  float* residual;
  int64_t n;
};

// See RoundingNoise in kernels/codec/codec.h.
struct CodecNoise {
  uint64_t key = 0;
  uint64_t stream = 0;
  int64_t first_element = 0;
};

// codes [n]
cudaError_t EncodeBf16(uint16_t* codes, const CodecInput& input, cudaStream_t stream);

// Elements of a block; the last one of a vector may be shorter.
inline constexpr int64_t kInt8BlockElements = 256;
constexpr int64_t Int8EncodedBytes(int64_t n) {
  return n + 4 * ((n + kInt8BlockElements - 1) / kInt8BlockElements);
}
// encoded: Int8EncodedBytes(n), 4-byte aligned; blocks of [scale: fp32 | codes].
cudaError_t EncodeInt8(void* encoded, const CodecInput& input, const CodecNoise& noise,
                       cudaStream_t stream);

}  // namespace lodestar::cuda
