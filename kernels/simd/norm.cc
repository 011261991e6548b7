// SPDX-License-Identifier: Apache-2.0

// Implements layer normalisation. Each row is processed completely while it is in the first-level
// cache.
#include "kernels/simd/tables.h"
#include "kernels/simd/vector.h"

namespace lodestar::simd::LODESTAR_ISA {
namespace {

constexpr float kNormEpsilon = 1e-5f;

// Calls visit(i, lanes) for each group of lanes of a row. `lanes` is kLanes except in the last
// group.
template <typename Visit>
inline void ForEachVec(int64_t width, Visit visit) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) visit(i, int64_t{kLanes});
  if (i < width) visit(i, width - i);
}

inline Vec LoadN(const float* p, int64_t n) { return n == kLanes ? Load(p) : LoadPart(p, n); }
inline void StoreN(float* p, Vec v, int64_t n) {
  if (n == kLanes) {
    Store(p, v);
  } else {
    StorePart(p, v, n);
  }
}

inline float RowSum(float* sum, const float* a, const float* b, int64_t width) {
  Vec total = {};
  ForEachVec(width, [&](int64_t i, int64_t n) {
    Vec v = LoadN(a + i, n);
    if (b != nullptr) v += LoadN(b + i, n);
    if (b != nullptr || sum != a) StoreN(sum + i, v, n);
    total += v;
  });
  return SumLanes(total);
}

inline float RowVariance(const float* sum, float mean, int64_t width) {
  Vec total = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Vec d = Load(sum + i) - mean;
    total = Fma(d, d, total);
  }
  if (i < width) {
    const Vec d = LoadPart(sum + i, width - i, mean) - mean;
    total = Fma(d, d, total);
  }
  return SumLanes(total) / static_cast<float>(width);
}

void NormForward(float* y, float* sum, float* mean, float* rstd, const float* a, const float* b,
                 const float* gamma, const float* beta, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row * width;
    const float* b_row = b != nullptr ? b + at : nullptr;
    const float row_mean = RowSum(sum + at, a + at, b_row, width) / static_cast<float>(width);
    const float variance = RowVariance(sum + at, row_mean, width);
    const float row_rstd = 1.0f / __builtin_sqrtf(variance + kNormEpsilon);
    mean[row] = row_mean;
    rstd[row] = row_rstd;
    ForEachVec(width, [&](int64_t i, int64_t n) {
      const Vec x = (LoadN(sum + at + i, n) - row_mean) * row_rstd;
      StoreN(y + at + i, Fma(x, LoadN(gamma + i, n), LoadN(beta + i, n)), n);
    });
  }
}

// With g = dy * gamma: dx = rstd * (g - mean(g) - x_hat * mean(g * x_hat)).
void NormBackward(float* dx, float* dgamma, float* dbeta, const float* dy, const float* sum,
                  const float* mean, const float* rstd, const float* gamma, int64_t rows,
                  int64_t width, bool add_to_dx) {
  for (int64_t i = 0; i < width; ++i) dgamma[i] = dbeta[i] = 0.0f;
  const float inverse_width = 1.0f / static_cast<float>(width);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row * width;
    Vec g_total = {};
    Vec gx_total = {};
    ForEachVec(width, [&](int64_t i, int64_t n) {
      const Vec d = LoadN(dy + at + i, n);
      const Vec x = (LoadN(sum + at + i, n) - mean[row]) * rstd[row];
      const Vec g = d * LoadN(gamma + i, n);
      g_total += g;
      gx_total = Fma(g, x, gx_total);
      StoreN(dgamma + i, Fma(d, x, LoadN(dgamma + i, n)), n);
      StoreN(dbeta + i, LoadN(dbeta + i, n) + d, n);
    });
    const float mean_g = SumLanes(g_total) * inverse_width;
    const float mean_gx = SumLanes(gx_total) * inverse_width;
    ForEachVec(width, [&](int64_t i, int64_t n) {
      const Vec x = (LoadN(sum + at + i, n) - mean[row]) * rstd[row];
      const Vec g = LoadN(dy + at + i, n) * LoadN(gamma + i, n);
      Vec value = Fma(x, Broadcast(-mean_gx), g - mean_g) * rstd[row];
      if (add_to_dx) value += LoadN(dx + at + i, n);
      StoreN(dx + at + i, value, n);
    });
  }
}

}  // namespace

void AddNorm(Loops* loops) {
  loops->norm_forward = NormForward;
  loops->norm_backward = NormBackward;
}

}  // namespace lodestar::simd::LODESTAR_ISA
