// The codec of top-k: of each block only the elements of largest magnitude travel, with their
// places. Format: common/params/encoding.h. `encoding` is one of top-k throughout.
//
// Of equal magnitudes the lower place travels. The two levels of topk_bits() 2 are the means of the
// smaller and the larger kept magnitudes (k-means of two, begun at their mean); the eight of 4 lie
// evenly from the smallest to the largest. Magnitudes are rounded to the nearest level. Sums are of
// whole numbers, so that every device makes the same bytes in whatever order it adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/codec/codec.h"

namespace lodestar::codec {

// Blocks whose largest magnitude is below this are taken as zeros: their levels could be subnormal.
inline constexpr float kSmallestTopK = 0x1p-100f;

const Codec& TopKCodecOf(Encoding encoding);

// acc += scale * decoded, the elements that travel only.
void AddTopK(Encoding encoding, const std::byte* encoded, int64_t n, float scale, float* acc);
// acc += weight at the places of the elements that travel.
void AddAtTopK(Encoding encoding, const std::byte* encoded, int64_t n, float weight, float* acc);

// First element of the first block whose places are not ascending, or beyond its end; n if there is
// none.
int64_t FirstMalformedTopK(Encoding encoding, const std::byte* encoded, int64_t n);

}  // namespace lodestar::codec
