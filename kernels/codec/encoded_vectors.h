// SPDX-License-Identifier: Apache-2.0

// The functions that servers and workers apply to encoded vectors. They work piece by piece, so
// that a whole vector of decoded elements never needs memory. `encoded` is the whole encoding of n
// elements and needs no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/buf.h"
#include "kernels/codec/codec.h"

namespace lodestar::codec {

// Computes acc += scale * decoded, or acc = scale * decoded with Accumulate::kSet. The bits are
// those that AccumulateScaled() (kernels/vectors/reduce.h) gives on decoded elements.
void AccumulateDecoded(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
                       float* acc, kernels::Accumulate accumulate);

// Adds `weight` to acc at the elements that are sent: with top-k the kept places, otherwise all
// elements.
void AddWhereKept(params::Encoding encoding, const std::byte* encoded, int64_t n, float weight,
                  float* acc);

// Decodes the elements [begin, begin + size) of n.
void DecodePart(params::Encoding encoding, const std::byte* encoded, int64_t n, int64_t begin,
                int64_t size, float* values);

// Returns the first element of the first block with bytes that no encoder makes, or n if every
// block is well-formed. Malformed bytes may give two values for one element, or a value for an
// element beyond the end. Call this first for every vector that was received.
int64_t FirstMalformed(params::Encoding encoding, const std::byte* encoded, int64_t n);

// Returns the index of the first element that is NaN or whose magnitude is not below `limit`, or n
// if there is none. `limit` is above 0. An infinite `limit` means that only NaN and Inf are found.
int64_t FirstNotBelow(params::Encoding encoding, const std::byte* encoded, float limit, int64_t n);
// Also computes the sum of the squares of the elements in the same pass, with a relative error of
// at most 1e-6. The sum has no meaning if an element is found. Squares below the smallest fp32
// number may count as 0.
int64_t FirstNotBelow(params::Encoding encoding, const std::byte* encoded, float limit, int64_t n,
                      double* square_sum);

// Returns the sum of the squares of scale * decoded - base.
double SquareDistance(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
                      const float* base);

// Encodes scale * values + residual. A null `residual` counts as 0.
void EncodeWithResidual(params::Encoding encoding, const float* values, float scale,
                        const float* residual, int64_t n, const kernels::Rounding& rounding,
                        std::byte* encoded);
// Computes residual = decay * ((scale * values + residual) - decoded): what EncodeWithResidual()
// has lost, times `decay`.
void UpdateResidual(params::Encoding encoding, const float* values, float scale,
                    const std::byte* encoded, int64_t n, float decay, float* residual);
// Encodes like EncodeWithResidual(), and in the same pass writes to `next_residual` what
// UpdateResidual() would make of `residual`. `next_residual` must overlap no other argument, and is
// not in the caches afterwards.
void EncodeAndUpdate(params::Encoding encoding, const float* values, float scale,
                     const float* residual, int64_t n, const kernels::Rounding& rounding,
                     float decay, std::byte* encoded, float* next_residual);

// Encodes target - base.
void EncodeChange(params::Encoding encoding, const float* target, const float* base, int64_t n,
                  const kernels::Rounding& rounding, std::byte* encoded);
// Encodes target - base like EncodeChange(), and in the same pass adds the decoded change to
// `base`.
void EncodeChangeAndAdvance(params::Encoding encoding, const float* target, float* base, int64_t n,
                            const kernels::Rounding& rounding, std::byte* encoded);

}  // namespace lodestar::codec
