// Softmax over rows: causal attention scores and the loss.
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

// x[i] becomes exp(scale * x[i] - shift); returns the sum.
inline float ExpRow(float* x, int64_t n, float scale, float shift) {
  const Vec factor = Broadcast(scale);
  const Vec offset = Broadcast(-shift);
  Vec total = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec e = Exp(Fma(Load(x + i), factor, offset));
    Store(x + i, e);
    total += e;
  }
  float sum = SumLanes(total);
  if (i < n) {
    const Vec e = Exp(Fma(LoadPart(x + i, n - i), factor, offset));
    StorePart(x + i, e, n - i);
    for (int64_t lane = 0; lane < n - i; ++lane) sum += e[lane];
  }
  return sum;
}

inline void ScaleRow(float* x, int64_t n, float factor) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(x + i, Load(x + i) * factor);
  if (i < n) StorePart(x + i, LoadPart(x + i, n - i) * factor, n - i);
}

inline void ZeroRow(float* x, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) x[i] = 0.0f;
}

void CausalSoftmax(float* scores, float* log_sum_exp, int64_t rows, int64_t first, int64_t padded,
                   int64_t stride, float scale) {
  for (int64_t row = 0; row < rows; ++row) {
    float* x = scores + row * stride;
    const int64_t n = first + row + 1;
    const float shift = RowMax(x, n) * scale;
    const float sum = ExpRow(x, n, scale, shift);
    log_sum_exp[row] = shift + __builtin_logf(sum);
    ScaleRow(x, n, 1.0f / sum);
    ZeroRow(x, n, padded);
  }
}

void CausalSoftmaxBackward(float* scores, float* dp, const float* log_sum_exp, const float* delta,
                           int64_t rows, int64_t first, int64_t padded, int64_t stride,
                           float scale) {
  for (int64_t row = 0; row < rows; ++row) {
    float* p = scores + row * stride;
    float* d = dp + row * stride;
    const int64_t n = first + row + 1;
    const Vec factor = Broadcast(scale);
    const Vec offset = Broadcast(-log_sum_exp[row]);
    const Vec row_delta = Broadcast(delta[row]);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      const Vec e = Exp(Fma(Load(p + i), factor, offset));
      Store(p + i, e);
      Store(d + i, e * factor * (Load(d + i) - row_delta));
    }
    if (i < n) {
      const Vec e = Exp(Fma(LoadPart(p + i, n - i), factor, offset));
      StorePart(p + i, e, n - i);
      StorePart(d + i, e * factor * (LoadPart(d + i, n - i) - row_delta), n - i);
    }
    ZeroRow(p, n, padded);
    ZeroRow(d, n, padded);
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
  if (scale == 0.0f) {
    Vec total = {};
    int64_t i = 0;
    for (; i + kLanes <= classes; i += kLanes) total += Exp(Load(logits + i) - largest);
    float sum = SumLanes(total);
    if (i < classes) {
      const Vec e = Exp(LoadPart(logits + i, classes - i) - largest);
      for (int64_t lane = 0; lane < classes - i; ++lane) sum += e[lane];
    }
    return largest + __builtin_logf(sum) - target_logit;
  }
  const float sum = ExpRow(logits, classes, 1.0f, largest);
  ScaleRow(logits, classes, scale / sum);
  logits[target] -= scale;
  return largest + __builtin_logf(sum) - target_logit;
}

}  // namespace

void AddSoftmax(Loops* loops) {
  loops->causal_softmax = CausalSoftmax;
  loops->causal_softmax_backward = CausalSoftmaxBackward;
  loops->dot = Dot;
  loops->cross_entropy = CrossEntropy;
}

}  // namespace lodestar::simd::LODESTAR_ISA
