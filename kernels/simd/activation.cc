// SPDX-License-Identifier: Apache-2.0

// Adds the bias and applies the activation, forward and backward, in one pass over the matrix.
#include "kernels/simd/tables.h"
#include "kernels/simd/vector.h"

namespace lodestar::simd::LODESTAR_ISA {
namespace {

// gelu(x) = x * sigmoid(2 u) with u = sqrt(2/pi) (x + 0.044715 x^3), because 0.5 (1 + tanh(u)) =
// sigmoid(2 u). In this form, GELU needs one exponential and one division. Its absolute error is
// below 3e-7 * |x|.
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

inline Vec GeluSigmoid(Vec x) {
  const Vec inner = x * Fma(x * x, Broadcast(kCubic), Broadcast(1.0f)) * kTwoRootTwoOverPi;
  return 1.0f / (Exp(-inner) + 1.0f);
}

template <kernels::Activation kActivation>
inline Vec Activate(Vec x) {
  if (kActivation == kernels::Activation::kRelu) return x < 0.0f ? Vec{} : x;
  if (kActivation == kernels::Activation::kGeluTanh) return x * GeluSigmoid(x);
  return x;
}

// Returns dy times the slope of the activation at x. With u as above and s = sigmoid(2 u), gelu'(x)
// = s + x s (1 - s) (2 u)'.
template <kernels::Activation kActivation>
inline Vec TimesSlope(Vec dy, Vec x) {
  if (kActivation == kernels::Activation::kRelu) return x > 0.0f ? dy : Vec{};
  if (kActivation == kernels::Activation::kGeluTanh) {
    const Vec s = GeluSigmoid(x);
    const Vec slope = Fma(x * x, Broadcast(3.0f * kCubic), Broadcast(1.0f)) * kTwoRootTwoOverPi;
    return dy * Fma(x * slope, s - s * s, s);
  }
  return dy;
}

template <kernels::Activation kActivation>
void Forward(float* y, float* pre, const float* bias, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row) {
    float* y_row = y + row * columns;
    float* pre_row = pre != nullptr ? pre + row * columns : nullptr;
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) {
      Vec v = Load(y_row + i);
      if (bias != nullptr) v += Load(bias + i);
      if (pre_row != nullptr) Store(pre_row + i, v);
      Store(y_row + i, Activate<kActivation>(v));
    }
    const int64_t rest = columns - i;
    if (rest == 0) continue;
    Vec v = LoadPart(y_row + i, rest);
    if (bias != nullptr) v += LoadPart(bias + i, rest);
    if (pre_row != nullptr) StorePart(pre_row + i, v, rest);
    StorePart(y_row + i, Activate<kActivation>(v), rest);
  }
}

void BiasActivation(float* y, float* pre, const float* bias, int64_t rows, int64_t columns,
                    kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kNone:
      if (bias != nullptr) Forward<kernels::Activation::kNone>(y, nullptr, bias, rows, columns);
      break;
    case kernels::Activation::kRelu:
      Forward<kernels::Activation::kRelu>(y, pre, bias, rows, columns);
      break;
    case kernels::Activation::kGeluTanh:
      Forward<kernels::Activation::kGeluTanh>(y, pre, bias, rows, columns);
      break;
  }
}

template <kernels::Activation kActivation>
void Backward(float* dy, const float* pre, float* column_sums, int64_t rows, int64_t columns) {
  if (column_sums != nullptr) {
    for (int64_t i = 0; i < columns; ++i) column_sums[i] = 0.0f;
  }
  for (int64_t row = 0; row < rows; ++row) {
    float* dy_row = dy + row * columns;
    const float* pre_row = pre + row * columns;
    int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) {
      Vec v = Load(dy_row + i);
      if (kActivation != kernels::Activation::kNone) {
        v = TimesSlope<kActivation>(v, Load(pre_row + i));
        Store(dy_row + i, v);
      }
      if (column_sums != nullptr) Store(column_sums + i, Load(column_sums + i) + v);
    }
    const int64_t rest = columns - i;
    if (rest == 0) continue;
    Vec v = LoadPart(dy_row + i, rest);
    if (kActivation != kernels::Activation::kNone) {
      v = TimesSlope<kActivation>(v, LoadPart(pre_row + i, rest));
      StorePart(dy_row + i, v, rest);
    }
    if (column_sums != nullptr) {
      StorePart(column_sums + i, LoadPart(column_sums + i, rest) + v, rest);
    }
  }
}

void ActivationBackward(float* dy, const float* pre, float* column_sums, int64_t rows,
                        int64_t columns, kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kNone:
      if (column_sums != nullptr) {
        Backward<kernels::Activation::kNone>(dy, dy, column_sums, rows, columns);
      }
      break;
    case kernels::Activation::kRelu:
      Backward<kernels::Activation::kRelu>(dy, pre, column_sums, rows, columns);
      break;
    case kernels::Activation::kGeluTanh:
      Backward<kernels::Activation::kGeluTanh>(dy, pre, column_sums, rows, columns);
      break;
  }
}

}  // namespace

void AddActivation(Loops* loops) {
  loops->bias_activation = BiasActivation;
  loops->activation_backward = ActivationBackward;
}

}  // namespace lodestar::simd::LODESTAR_ISA
