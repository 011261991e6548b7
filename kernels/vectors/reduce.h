// SPDX-License-Identifier: Apache-2.0

// Computes sums over fp32 vectors on the CPU, on the calling thread. A server uses them to average
// contributions. No alignment is required. Results of elementwise functions have the same bits if a
// vector is divided.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/device.h"

namespace lodestar::vectors {

// Computes acc += scale * x, or acc = scale * x with Accumulate::kSet. acc may be x.
void AccumulateScaled(float* acc, const float* x, float scale, int64_t n,
                      kernels::Accumulate accumulate);

// Computes out = scale * x. Returns true if all elements of `out` are finite. Use this if `out` is
// not read again soon: if it is long, it is written with stores that bypass the caches.
bool WriteScaled(float* out, const float* x, float scale, int64_t n);

// Copies x to out with stores that bypass the caches. Use this if `out` is not read again soon. x
// and out must not overlap.
void CopyPastCaches(float* out, const float* x, int64_t n);

// Computes out = scale * (x - y) with stores that bypass the caches. Other threads see `out` only
// after this thread has called EndPastCaches(). That call takes as long as the computation of some
// hundred elements.
void DifferencePastCaches(float* out, const float* x, const float* y, float scale, int64_t n);
void EndPastCaches();

// Does the same as AccumulateScaled(). Returns true if all elements of x were finite, in the same
// pass over memory. Does not check acc. acc is changed even if the result is false.
bool AccumulateScaledCheckingFinite(float* acc, const float* x, float scale, int64_t n,
                                    kernels::Accumulate accumulate);

// Sets out[i], in fp32, to a trimmed mean of the i-th elements of the vectors in `values`. Drops
// the `trim` lowest and the `trim` highest elements, and takes the weighted mean of the others.
// - weights[v] is the weight of values[v], and must be above 0. Empty `weights` means equal
//   weights.
// - `values` has more than 2 * trim and at most kMaxTrimmedValues vectors, without NaN. `out` may
//   be one of them.
// - If elements are equal, their order in `values` decides which of them are dropped.
inline constexpr int kMaxTrimmedValues = 32;
void TrimmedMean(float* out, absl::Span<const float* const> values, absl::Span<const float> weights,
                 int trim, int64_t n);

// Compute z = x - y and z = x + y. z may be x or y.
void Subtract(float* z, const float* x, const float* y, int64_t n);
void Add(float* z, const float* x, const float* y, int64_t n);

// Returns the sum of squares. Adds in f64, in an order that depends only on n. If a vector is
// divided, the last bits of the total may differ. To get the same bits, add the sums of fixed
// segments.
double SumOfSquares(const float* x, int64_t n);
// Returns the dot product, added in the same way as in SumOfSquares().
double DotProduct(const float* x, const float* y, int64_t n);

bool AllFinite(const float* x, int64_t n);
// Returns true if every |x[i]| < limit. NaN gives false. `limit` is above 0 and may be infinite.
bool AllBelow(const float* x, float limit, int64_t n);
// Does the same, and also computes the sum of squares, in the same pass, at the speed of memory.
// For elements between 1e-18 and 1e18 the relative error is at most about 1e-6. For smaller
// elements it is larger. For larger elements the sum may be infinite.
bool AllBelow(const float* x, float limit, int64_t n, double* square_sum);

}  // namespace lodestar::vectors
