// SPDX-License-Identifier: Apache-2.0

// The top-k codec keeps only the elements of largest magnitude of each block, with their positions
// in the block. Format: common/params/encoding.h. `encoding` must be a top-k encoding in every
// function.
//
// A kept element is encoded as its sign and a level. Each level stands for a magnitude:
// - With topk_bits() 2 there are two levels: the mean of the smaller and the mean of the larger
//   kept magnitudes. K-means finds these two groups. It first splits them at the mean of all kept
//   magnitudes.
// - With topk_bits() 4 there are eight levels. They are evenly spaced from the smallest to the
//   largest kept magnitude.
// Magnitudes are rounded to the nearest level. Of equal magnitudes, the one with the lower position
// is kept. All sums are sums of integers. So every device makes the same bytes, in whatever order
// it adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/codec/codec.h"

namespace lodestar::codec {

// If the largest magnitude of a block is below this number, the block is encoded as zeros.
// Otherwise its levels could be subnormal.
inline constexpr float kSmallestTopK = 0x1p-100f;

const Codec& TopKCodecOf(params::Encoding encoding);

// Computes acc += scale * decoded at the kept elements. If the levels of a block are not finite,
// sets this block of acc to NaN. Does not change other elements.
void AddTopK(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
             float* acc);
// Computes acc += weight at the kept elements. Skips blocks whose levels are not finite.
void AddAtTopK(params::Encoding encoding, const std::byte* encoded, int64_t n, float weight,
               float* acc);

// Returns the first element of the first block whose positions are not ascending or lie beyond the
// end of the block. Returns n if there is no such block.
int64_t FirstMalformedTopK(params::Encoding encoding, const std::byte* encoded, int64_t n);

}  // namespace lodestar::codec
