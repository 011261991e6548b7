// SPDX-License-Identifier: Apache-2.0

// Top-k on the card. It gives the same bytes as kernels/codec/topk_codec.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/codec.h"

namespace lodestar::cuda {

inline constexpr int kTopKBlockElements = 4096;  // the last block may be shorter
inline constexpr int kMostKept = 1024;

// topk is the number of kept elements per block, from 1 to kMostKept. bits is the number of bits of
// each code, 2 or 4.
struct TopKFormat {
  int topk;
  int bits;

  // The bytes of a block with `kept` kept elements are two levels in bf16, then the places of the
  // elements (12 bits each), then their codes.
  static constexpr int kLevelBytes = 4;
  static constexpr int PlaceBytes(int kept) { return (12 * kept + 7) / 8; }
  constexpr int CodeBytes(int kept) const { return (bits * kept + 7) / 8; }
  constexpr int BlockBytes(int kept) const {
    return kLevelBytes + PlaceBytes(kept) + CodeBytes(kept);
  }
};

// Encodes to `encoded`, which may begin at any address.
cudaError_t EncodeTopK(void* encoded, const CodecInput& input, const TopKFormat& format,
                       cudaStream_t stream);
// Computes the error of the encoding: lost [n] = decay * (input - decoded). `lost` may be
// input.residual.
cudaError_t LostInTopK(float* lost, const CodecInput& input, const TopKFormat& format,
                       const void* encoded, float decay, cudaStream_t stream);

}  // namespace lodestar::cuda
