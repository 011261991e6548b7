// What servers and workers do with encoded vectors, a piece at a time, so that no vector of decoded
// elements is ever needed. `encoded` is the whole of n elements and may lie anywhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/buf.h"
#include "kernels/codec/codec.h"

namespace lodestar::codec {

// acc += scale * decoded, or acc = scale * decoded with Accumulate::kSet. The same bits as of
// AccumulateScaled() (kernels/vectors/reduce.h) on decoded elements.
void AccumulateDecoded(Encoding encoding, const std::byte* encoded, int64_t n, float scale,
                       float* acc, kernels::Accumulate accumulate);

// acc += weight where the element travels: of top-k at its kept places, else everywhere.
void AddWhereKept(Encoding encoding, const std::byte* encoded, int64_t n, float weight, float* acc);

// The elements [begin, begin + size) of n.
void DecodePart(Encoding encoding, const std::byte* encoded, int64_t n, int64_t begin, int64_t size,
                float* values);

// First element of the first block whose bytes no encoder makes, so that they may say two things of
// one element, or something of one that is not there; n if there is none. Whatever comes from
// others is asked this before anything else.
int64_t FirstMalformed(Encoding encoding, const std::byte* encoded, int64_t n);

// Index of the first element whose magnitude is not below `limit`, or that is NaN; n if there is
// none. `limit` is above 0; infinite: only NaN and Inf are found.
int64_t FirstNotBelow(Encoding encoding, const std::byte* encoded, float limit, int64_t n);
// The same in one pass with the sum of squares of the elements, to a millionth, which is of no
// meaning if an element is found. Squares below the smallest fp32 may count as 0.
int64_t FirstNotBelow(Encoding encoding, const std::byte* encoded, float limit, int64_t n,
                      double* square_sum);

// Sum of the squares of scale * decoded - base.
double SquareDistance(Encoding encoding, const std::byte* encoded, int64_t n, float scale,
                      const float* base);

// Encodes scale * values + residual; without a residual (null) scale * values.
void EncodeWithResidual(Encoding encoding, const float* values, float scale, const float* residual,
                        int64_t n, const kernels::Rounding& rounding, std::byte* encoded);
// What that has lost, times `decay`, becomes the residual: (scale * values + residual) - decoded.
void UpdateResidual(Encoding encoding, const float* values, float scale, const std::byte* encoded,
                    int64_t n, float decay, float* residual);
// EncodeWithResidual() in one pass with what UpdateResidual() then makes of the residual, which is
// written to `next_residual` instead. That overlaps nothing, and is not in the caches afterwards.
void EncodeAndUpdate(Encoding encoding, const float* values, float scale, const float* residual,
                     int64_t n, const kernels::Rounding& rounding, float decay, std::byte* encoded,
                     float* next_residual);

// Encodes target - base.
void EncodeChange(Encoding encoding, const float* target, const float* base, int64_t n,
                  const kernels::Rounding& rounding, std::byte* encoded);
// The same in one pass with base += decoded.
void EncodeChangeAndAdvance(Encoding encoding, const float* target, float* base, int64_t n,
                            const kernels::Rounding& rounding, std::byte* encoded);

}  // namespace lodestar::codec
