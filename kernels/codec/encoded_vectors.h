// SPDX-License-Identifier: Apache-2.0

// The functions that servers and workers apply to encoded vectors. They work piece by piece, so
// that they never need memory for a whole decoded vector. `encoded` is the whole encoding of n
// elements and needs no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/buf.h"
#include "kernels/codec/codec.h"

namespace lodestar::codec {

// Computes acc += scale * decoded, or acc = scale * decoded with Accumulate::kSet. The bits are the
// same as if the elements were first decoded and then passed to AccumulateScaled()
// (kernels/vectors/reduce.h).
void AccumulateDecoded(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
                       float* acc, kernels::Accumulate accumulate);

// Adds `weight` to elements of acc: with top-k to the kept elements, otherwise to all elements.
void AddWhereKept(params::Encoding encoding, const std::byte* encoded, int64_t n, float weight,
                  float* acc);

// Decodes the elements [begin, begin + size) of a vector of n elements.
void DecodePart(params::Encoding encoding, const std::byte* encoded, int64_t n, int64_t begin,
                int64_t size, float* values);

// Checks the bytes of a vector that was received. Must be called before other functions use them.
// Returns the first element of the first block that no encoder would make, or n if all blocks are
// well-formed. A malformed block may have two values for one element, or a value for an element
// beyond the end.
int64_t FirstMalformed(params::Encoding encoding, const std::byte* encoded, int64_t n);

// Returns the index of the first element that is NaN or whose magnitude is not below `limit`.
// Returns n if there is none. `limit` is above 0. If it is infinite, only NaN and Inf are found.
int64_t FirstNotBelow(params::Encoding encoding, const std::byte* encoded, float limit, int64_t n);
// Returns the same as the function above. In the same pass, sets `square_sum` to the sum of the
// squares of the elements, with a relative error of at most 1e-6. If the result is below n, the sum
// is meaningless. Squares below the smallest fp32 number may count as 0.
int64_t FirstNotBelow(params::Encoding encoding, const std::byte* encoded, float limit, int64_t n,
                      double* square_sum);

// Returns the sum of the squares of scale * decoded - base.
double SquareDistance(params::Encoding encoding, const std::byte* encoded, int64_t n, float scale,
                      const float* base);

// Encodes scale * values + residual. A null `residual` counts as 0.
void EncodeWithResidual(params::Encoding encoding, const float* values, float scale,
                        const float* residual, int64_t n, const kernels::Rounding& rounding,
                        std::byte* encoded);
// Computes residual = decay * ((scale * values + residual) - decoded). This is the error of
// EncodeWithResidual(), times `decay`.
void UpdateResidual(params::Encoding encoding, const float* values, float scale,
                    const std::byte* encoded, int64_t n, float decay, float* residual);
// Encodes like EncodeWithResidual(), and in the same pass sets `next_residual` to the residual that
// UpdateResidual() would compute. `next_residual` must overlap no other argument. It is not in the
// caches afterwards, because it is written directly to memory.
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
