// SPDX-License-Identifier: Apache-2.0

// The top-k codec keeps only the elements of largest magnitude of each block, with their places.
// Format: common/params/encoding.h. `encoding` must be a top-k encoding in every function.
//
// Of equal magnitudes, the one with the lower place is kept. With topk_bits() 2 there are two
// levels: the mean of the smaller and the mean of the larger kept magnitudes, found by k-means that
// starts at their common mean. With topk_bits() 4 there are eight levels, evenly spaced from the
// smallest to the largest kept magnitude. Magnitudes are rounded to the nearest level. All sums are
// sums of integers, so that every device makes the same bytes, whatever the order of its additions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/codec/codec.h"

namespace lodestar::codec {

// Minimum of the largest magnitude of a block. A block below it is encoded as zeros, because its
// levels could be subnormal.
inline constexpr float kSmallestTopK = 0x1p-100f;

const Codec& TopKCodecOf(params::Encoding encoding);

// Computes acc += scale * decoded at the kept elements. Does not change other elements.
void AddTopK(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
             float* acc);
// Computes acc += weight at the kept elements.
void AddAtTopK(params::Encoding encoding, const std::byte* encoded, int64_t n, float weight,
               float* acc);

// Returns the first element of the first block whose places are not ascending or lie beyond the end
// of the block, or n if there is no such block.
int64_t FirstMalformedTopK(params::Encoding encoding, const std::byte* encoded, int64_t n);

}  // namespace lodestar::codec
