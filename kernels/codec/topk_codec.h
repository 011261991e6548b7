// SPDX-License-Identifier: Apache-2.0

// The top-k codec sends only the elements of largest magnitude of each block, with their places.
// Format: common/params/encoding.h. `encoding` must be a top-k encoding in every function.
//
// If magnitudes are equal, the element with the lower place is sent. With topk_bits() 2 there are
// two levels: the means of the smaller and the larger kept magnitudes, found by k-means from their
// common mean. With topk_bits() 4 there are eight levels, evenly spaced from the smallest to the
// largest kept magnitude. Magnitudes are rounded to the nearest level. Sums are of integers, so
// that every device makes the same bytes, in whatever order it adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/codec/codec.h"

namespace lodestar::codec {

// Blocks whose largest magnitude is below this are encoded as zeros: their levels could be
// subnormal.
inline constexpr float kSmallestTopK = 0x1p-100f;

const Codec& TopKCodecOf(params::Encoding encoding);

// Computes acc += scale * decoded at the elements that were sent, and leaves the others alone.
void AddTopK(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
             float* acc);
// Computes acc += weight at the elements that were sent.
void AddAtTopK(params::Encoding encoding, const std::byte* encoded, int64_t n, float weight,
               float* acc);

// Returns the first element of the first block whose places are not ascending or lie beyond the end
// of the block, or n if there is no such block.
int64_t FirstMalformedTopK(params::Encoding encoding, const std::byte* encoded, int64_t n);

}  // namespace lodestar::codec
