// Sums over fp32 vectors on the CPU, on the calling thread: what a server needs to average
// contributions. Any alignment. The elementwise ones give the same bits wherever a vector is cut.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/device.h"

namespace lodestar::vectors {

// acc += scale * x, or acc = scale * x with Accumulate::kSet. acc may be x.
void AccumulateScaled(float* acc, const float* x, float scale, int64_t n,
                      kernels::Accumulate accumulate);

// out = scale * x; returns whether that is finite. `out` is not read again soon: a long one does
// not pass through the caches.
bool WriteScaled(float* out, const float* x, float scale, int64_t n);

// out = x, which overlaps nothing. `out` is not read again soon: it does not pass through the
// caches.
void CopyPastCaches(float* out, const float* x, int64_t n);

// out = scale * (x - y), in the same way; but other threads see it only after EndPastCaches(),
// which costs as much as some hundred elements.
void DifferencePastCaches(float* out, const float* x, const float* y, float scale, int64_t n);
void EndPastCaches();

// AccumulateScaled() that also returns whether every x was finite, in one pass over memory. acc is
// changed in any case; not x.
bool AccumulateScaledCheckingFinite(float* acc, const float* x, float scale, int64_t n,
                                    kernels::Accumulate accumulate);

// out[i] = the mean of the i-th elements of `values` without the `trim` lowest and the `trim`
// highest of them, each with the weight of its vector (`weights` empty: all alike), in fp32. Of
// values that are equal, which goes is decided by their order in `values`. out may be one of them.
// There are at most kMaxTrimmedValues, more than 2 * trim, and none has a NaN; weights are above 0.
inline constexpr int kMaxTrimmedValues = 32;
void TrimmedMean(float* out, absl::Span<const float* const> values, absl::Span<const float> weights,
                 int trim, int64_t n);

// z = x - y, and z = x + y; z may be x or y.
void Subtract(float* z, const float* x, const float* y, int64_t n);
void Add(float* z, const float* x, const float* y, int64_t n);

// In f64, in an order that depends on n only. The sum over a cut vector differs in the last bits:
// add the sums of fixed segments.
double SumOfSquares(const float* x, int64_t n);
// In the same way.
double DotProduct(const float* x, const float* y, int64_t n);

bool AllFinite(const float* x, int64_t n);
// Whether every |x[i]| < limit; not for NaN. `limit` is above 0, and may be infinite.
bool AllBelow(const float* x, float limit, int64_t n);
// The same, and about the sum of squares, in one pass at the speed of memory: of elements between
// 1e-18 and 1e18 to a millionth, of smaller ones less, of larger ones perhaps infinite.
bool AllBelow(const float* x, float limit, int64_t n, double* square_sum);

}  // namespace lodestar::vectors
