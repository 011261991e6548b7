// SPDX-License-Identifier: Apache-2.0

#include "kernels/vectors/reduce.h"

#include <immintrin.h>

#include <algorithm>
#include <limits>

#include "common/runtime/check.h"
#include "kernels/simd/loops.h"

namespace lodestar::vectors {
namespace {

// Number of elements of a block (32 KiB of fp32). AccumulateScaledCheckingFinite() reads a block
// twice, and the second time it is still in the cache.
constexpr int64_t kBlock = 8 * 1024;

static_assert(kMaxTrimmedValues == simd::kMaxTrimmedValues);

}  // namespace

void AccumulateScaled(float* acc, const float* x, float scale, int64_t n,
                      kernels::Accumulate accumulate) {
  if (accumulate == kernels::Accumulate::kSet) {
    simd::BestLoops().scale(acc, x, scale, n);
  } else {
    simd::BestLoops().add_scaled(acc, x, scale, n);
  }
}

bool WriteScaled(float* out, const float* x, float scale, int64_t n) {
  return simd::BestLoops().write_scaled(out, x, scale, n);
}

void CopyPastCaches(float* out, const float* x, int64_t n) {
  simd::BestLoops().copy_past_caches(out, x, n);
}

void DifferencePastCaches(float* out, const float* x, const float* y, float scale, int64_t n) {
  simd::BestLoops().difference_past_caches(out, x, y, scale, n);
}

void EndPastCaches() { _mm_sfence(); }

bool AccumulateScaledCheckingFinite(float* acc, const float* x, float scale, int64_t n,
                                    kernels::Accumulate accumulate) {
  bool finite = true;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = std::min(kBlock, n - i);
    finite = AllFinite(x + i, count) && finite;
    AccumulateScaled(acc + i, x + i, scale, count, accumulate);
  }
  return finite;
}

void TrimmedMean(float* out, absl::Span<const float* const> values, absl::Span<const float> weights,
                 int trim, int64_t n) {
  const int count = static_cast<int>(values.size());
  LODESTAR_CHECK(count <= kMaxTrimmedValues && 2 * trim < count && trim >= 0)
      << count << " values, trim " << trim;
  LODESTAR_CHECK(weights.empty() || weights.size() == values.size()) << weights.size();
  simd::BestLoops().trimmed_mean(out, values.data(), weights.empty() ? nullptr : weights.data(),
                                 count, trim, n);
}

void Subtract(float* z, const float* x, const float* y, int64_t n) {
  simd::BestLoops().subtract(z, x, y, n);
}

void Add(float* z, const float* x, const float* y, int64_t n) { simd::BestLoops().add(z, x, y, n); }

double SumOfSquares(const float* x, int64_t n) { return simd::BestLoops().sum_of_squares(x, n); }

double DotProduct(const float* x, const float* y, int64_t n) {
  return simd::BestLoops().dot_product(x, y, n);
}

bool AllBelow(const float* x, float limit, int64_t n) {
  return simd::BestLoops().all_below(x, limit, n);
}

bool AllBelow(const float* x, float limit, int64_t n, double* square_sum) {
  return simd::BestLoops().all_below_with_square_sum(x, limit, n, square_sum);
}

bool AllFinite(const float* x, int64_t n) {
  return AllBelow(x, std::numeric_limits<float>::infinity(), n);
}

}  // namespace lodestar::vectors
