// SPDX-License-Identifier: Apache-2.0

// Computes sums over fp32 vectors on the CPU, on the calling thread. A server needs them to average
// contributions. No alignment is required. Elementwise functions give the same bits wherever a
// vector is cut.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/device.h"

namespace lodestar::vectors {

// Computes acc += scale * x, or acc = scale * x with Accumulate::kSet. acc may be x.
void AccumulateScaled(float* acc, const float* x, float scale, int64_t n,
                      kernels::Accumulate accumulate);

// Computes out = scale * x. Returns true if all of `out` is finite. Use this if `out` is not read
// again soon: a long `out` does not pass through the caches.
bool WriteScaled(float* out, const float* x, float scale, int64_t n);

// Copies x to out, which must not overlap. Use this if `out` is not read again soon: it does not
// pass through the caches.
void CopyPastCaches(float* out, const float* x, int64_t n);

// Computes out = scale * (x - y) past the caches. Other threads see `out` only after
// EndPastCaches(), which takes as long as some hundred elements.
void DifferencePastCaches(float* out, const float* x, const float* y, float scale, int64_t n);
void EndPastCaches();

// Does AccumulateScaled(), and returns true if every x was finite, in one pass over memory. Only x
// is checked, not acc. acc is changed even if the result is false.
bool AccumulateScaledCheckingFinite(float* acc, const float* x, float scale, int64_t n,
                                    kernels::Accumulate accumulate);

// Sets out[i] to the mean of the i-th elements of `values` without the `trim` lowest and the `trim`
// highest of them, in fp32. `weights` has the weight of each vector; empty means equal weights. If
// elements are equal, their order in `values` decides which of them are left out. out may be one of
// `values`. Requires: more than 2 * trim and at most kMaxTrimmedValues vectors, no NaN, weights
// above 0.
inline constexpr int kMaxTrimmedValues = 32;
void TrimmedMean(float* out, absl::Span<const float* const> values, absl::Span<const float> weights,
                 int trim, int64_t n);

// Compute z = x - y and z = x + y. z may be x or y.
void Subtract(float* z, const float* x, const float* y, int64_t n);
void Add(float* z, const float* x, const float* y, int64_t n);

// Returns the sum of squares, added in f64 in an order that depends on n only. Cutting a vector
// changes the last bits of the sum. To get the same bits, add the sums of fixed segments.
double SumOfSquares(const float* x, int64_t n);
// Returns the dot product, added in the same way as in SumOfSquares().
double DotProduct(const float* x, const float* y, int64_t n);

bool AllFinite(const float* x, int64_t n);
// Returns true if every |x[i]| < limit. NaN gives false. `limit` is above 0 and may be infinite.
bool AllBelow(const float* x, float limit, int64_t n);
// Does the same, and computes the sum of squares in one pass at the speed of memory. For elements
// between 1e-18 and 1e18 the relative error is at most about 1e-6. For smaller elements it is
// larger. For larger elements the sum may be infinite.
bool AllBelow(const float* x, float limit, int64_t n, double* square_sum);

}  // namespace lodestar::vectors
