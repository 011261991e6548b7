// SPDX-License-Identifier: Apache-2.0

// Implements softmax over rows, for causal attention scores and for the loss.
#include "kernels/simd/tables.h"
#include "kernels/simd/vector.h"

namespace lodestar::simd::LODESTAR_ISA {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

inline float RowMax(const float* x, int64_t n) {
  Vec largest = Broadcast(kMinusInfinity);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = Max(largest, Load(x + i));
  if (i < n) largest = Max(largest, LoadPart(x + i, n - i, kMinusInfinity));
  return MaxLanes(largest);
}

// Says what ExpRow() does with the values exp(scale * x - shift).
enum class Keep { kNothing, kRow, kPaddedRow };

// Computes exp(scale * x[i] - shift) and returns the sum. kKeep says whether the values are written
// over x[i]. kPaddedRow also writes zeros up to a multiple of kLanes.
template <Keep kKeep>
inline float ExpRow(float* x, int64_t n, float scale, float shift) {
  const Vec factor = Broadcast(scale);
  const Vec offset = Broadcast(-shift);
  Vec total = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec e = Exp(Fma(Load(x + i), factor, offset));
    if (kKeep != Keep::kNothing) Store(x + i, e);
    total += e;
  }
  if (i < n) {
    const Vec e = ZeroFrom(Exp(Fma(LoadPart(x + i, n - i), factor, offset)), n - i);
    if (kKeep == Keep::kRow) StorePart(x + i, e, n - i);
    if (kKeep == Keep::kPaddedRow) Store(x + i, e);
    total += e;
  }
  return SumLanes(total);
}

inline void ScaleRow(float* x, int64_t n, float factor) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(x + i, Load(x + i) * factor);
  if (i < n) StorePart(x + i, LoadPart(x + i, n - i) * factor, n - i);
}

inline int64_t RoundUp(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

void CausalSoftmax(float* scores, float* log_sum_exp, int64_t rows, int64_t first, int64_t columns,
                   int64_t stride, float scale) {
  for (int64_t row = 0; row < rows; ++row) {
    float* x = scores + row * stride;
    const int64_t n = first + row + 1;
    const float shift = RowMax(x, n) * scale;
    const float sum = ExpRow<Keep::kPaddedRow>(x, n, scale, shift);
    log_sum_exp[row] = shift + __builtin_logf(sum);
    ScaleRow(x, RoundUp(n), 1.0f / sum);
    for (int64_t i = RoundUp(n); i < columns; i += kLanes) Store(x + i, Vec{});
  }
}

void CausalSoftmaxBackward(float* scores, float* dp, const float* log_sum_exp, const float* delta,
                           int64_t rows, int64_t first, int64_t columns, int64_t stride,
                           float scale) {
  const Vec factor = Broadcast(scale);
  for (int64_t row = 0; row < rows; ++row) {
    float* p = scores + row * stride;
    float* d = dp + row * stride;
    const int64_t n = first + row + 1;
    const Vec offset = Broadcast(-log_sum_exp[row]);
    const Vec row_delta = Broadcast(delta[row]);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const Vec e = Exp(Fma(Load(p + i), factor, offset));
      Store(p + i, e);
      Store(d + i, e * factor * (Load(d + i) - row_delta));
    }
    if (i < n) {
      const Vec e = ZeroFrom(Exp(Fma(LoadPart(p + i, n - i), factor, offset)), n - i);
      Store(p + i, e);
      Store(d + i, e * factor * (LoadPart(d + i, n - i) - row_delta));
      i += kLanes;
    }
    for (; i < columns; i += kLanes) {
      Store(p + i, Vec{});
      Store(d + i, Vec{});
    }
  }
}

float Dot(const float* a, const float* b, int64_t n) {
  Vec total = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) total = Fma(Load(a + i), Load(b + i), total);
  if (i < n) total = Fma(LoadPart(a + i, n - i), LoadPart(b + i, n - i), total);
  return SumLanes(total);
}

inline bool AnyEqual(const float* x, int64_t n, float value) {
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] == value) return true;
  }
  return false;
}

float CrossEntropy(float* logits, int32_t target, int64_t classes, float scale, int32_t* correct) {
  const float largest = RowMax(logits, classes);
  const float target_logit = logits[target];
  *correct = target_logit == largest && !AnyEqual(logits, target, largest) ? 1 : 0;
  const float sum = scale == 0.0f ? ExpRow<Keep::kNothing>(logits, classes, 1.0f, largest)
                                  : ExpRow<Keep::kRow>(logits, classes, 1.0f, largest);
  const float loss = largest + __builtin_logf(sum) - target_logit;
  if (scale == 0.0f) return loss;
  ScaleRow(logits, classes, scale / sum);
  logits[target] -= scale;
  return loss;
}

}  // namespace

void AddSoftmax(Loops* loops) {
  loops->causal_softmax = CausalSoftmax;
  loops->causal_softmax_backward = CausalSoftmaxBackward;
  loops->dot = Dot;
  loops->cross_entropy = CrossEntropy;
}

}  // namespace lodestar::simd::LODESTAR_ISA
