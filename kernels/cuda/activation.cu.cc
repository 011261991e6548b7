// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/activation.h"

#include <cuda_bf16.h>

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/fast_math.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/vector_map.h"

namespace lodestar::cuda {
namespace {

// gelu(x) = x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3), because 0.5 (1 + tanh(u)) =
// sigmoid(2 u).
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

template <typename T>
__device__ inline float GeluSigmoid(float x) {
  const float inner = x * fmaf(x * x, kCubic, 1.0f) * kTwoRootTwoOverPi;
  return QuotientFor<T>(1.0f, ExpFor<T>(-inner) + 1.0f);
}

template <typename T, kernels::Activation kActivation>
__device__ inline float Activated(float x) {
  if constexpr (kActivation == kernels::Activation::kRelu) return x < 0.0f ? 0.0f : x;
  if constexpr (kActivation == kernels::Activation::kGeluTanh) return x * GeluSigmoid<T>(x);
  return x;
}

// The slope of GELU is gelu'(x) = s + x s (1 - s) (2 u)', where s = sigmoid(2 u).
template <typename T, kernels::Activation kActivation>
__device__ inline float TimesSlope(float dy, float x) {
  if constexpr (kActivation == kernels::Activation::kRelu) return x > 0.0f ? dy : 0.0f;
  if constexpr (kActivation == kernels::Activation::kGeluTanh) {
    const float s = GeluSigmoid<T>(x);
    const float slope = fmaf(x * x, 3.0f * kCubic, 1.0f) * kTwoRootTwoOverPi;
    return dy * fmaf(x * slope, s - s * s, s);
  }
  return dy;
}

// The threads share the matrix as one vector of rows * columns elements, so that all threads are
// busy even if the matrix is narrow. The elements that a thread handles in one step are always in
// the same row.
template <typename T, kernels::Activation kActivation>
struct BiasActivationOperation {
  T* y;               // [rows, columns]
  T* pre_activation;  // [rows, columns]; null means that it is not stored
  const T* bias;      // [columns]; null means no bias
  int64_t columns;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float values[kLanes];
    Load(values, y + i);
    if (bias != nullptr) {
      float addend[kLanes];
      Load(addend, bias + (i - Quotient(i, columns) * columns));
#pragma unroll
      for (int k = 0; k < kLanes; ++k) values[k] = ToFloat(FromFloat<T>(values[k] + addend[k]));
    }
    if (pre_activation != nullptr) Store(pre_activation + i, values);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) values[k] = Activated<T, kActivation>(values[k]);
    Store(y + i, values);
  }
};

template <typename T, kernels::Activation kActivation>
struct ActivationBackwardOperation {
  T* dy;                    // [n]
  const T* pre_activation;  // [n]

  // Computes elements [i, i + kLanes) of the new dy, and rounds them to T. Stores them in dy and
  // sets `gradient` to them. The kernel of column_sums.h adds up `gradient`.
  template <int kLanes>
  __device__ void Take(float (&gradient)[kLanes], int64_t i) const {
    float x[kLanes];
    Load(gradient, dy + i);
    Load(x, pre_activation + i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      gradient[k] = ToFloat(FromFloat<T>(TimesSlope<T, kActivation>(gradient[k], x[k])));
    }
    Store(dy + i, gradient);
  }
  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float gradient[kLanes];
    Take(gradient, i);
  }
};

template <typename T, kernels::Activation kActivation>
struct ActivateOperation {
  T* y;        // [n]
  const T* x;  // [n]

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float values[kLanes];
    Load(values, x + i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) values[k] = Activated<T, kActivation>(values[k]);
    Store(y + i, values);
  }
};

template <typename T, kernels::Activation kActivation>
cudaError_t LaunchBiasActivation(T* y, T* pre_activation, const T* bias, int64_t rows,
                                 int64_t columns, cudaStream_t stream) {
  const bool aligned = columns % kVectorLanes<T> == 0 && AreVectorsAligned(y, pre_activation, bias);
  return MapVectors<kVectorLanes<T>>(
      BiasActivationOperation<T, kActivation>{y, pre_activation, bias, columns}, rows * columns,
      aligned, stream);
}

template <typename T, kernels::Activation kActivation>
cudaError_t LaunchBackwardSums(float* partials, T* dy, const T* pre_activation, int64_t rows,
                               int64_t columns, cudaStream_t stream) {
  constexpr int kLanes = kVectorLanes<T>;
  const ActivationBackwardOperation<T, kActivation> elements{dy, pre_activation};
  return columns % kLanes == 0 && AreVectorsAligned(dy, pre_activation)
             ? PartialColumnSums<kLanes>(partials, elements, rows, columns, stream)
             : PartialColumnSums<1>(partials, elements, rows, columns, stream);
}

}  // namespace

template <typename T>
cudaError_t BiasActivation(T* y, T* pre_activation, const T* bias, int64_t rows, int64_t columns,
                           kernels::Activation activation, cudaStream_t stream) {
  switch (activation) {
    case kernels::Activation::kNone:
      if (bias == nullptr && pre_activation == nullptr) return cudaSuccess;
      return LaunchBiasActivation<T, kernels::Activation::kNone>(y, pre_activation, bias, rows,
                                                                 columns, stream);
    case kernels::Activation::kRelu:
      return LaunchBiasActivation<T, kernels::Activation::kRelu>(y, pre_activation, bias, rows,
                                                                 columns, stream);
    case kernels::Activation::kGeluTanh:
      return LaunchBiasActivation<T, kernels::Activation::kGeluTanh>(y, pre_activation, bias, rows,
                                                                     columns, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t ActivationBackward(T* dy, const T* pre_activation, int64_t n,
                               kernels::Activation activation, cudaStream_t stream) {
  const bool aligned = AreVectorsAligned(dy, pre_activation);
  switch (activation) {
    case kernels::Activation::kNone:
      return cudaSuccess;
    case kernels::Activation::kRelu:
      return MapVectors<kVectorLanes<T>>(
          ActivationBackwardOperation<T, kernels::Activation::kRelu>{dy, pre_activation}, n,
          aligned, stream);
    case kernels::Activation::kGeluTanh:
      return MapVectors<kVectorLanes<T>>(
          ActivationBackwardOperation<T, kernels::Activation::kGeluTanh>{dy, pre_activation}, n,
          aligned, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t ActivationBackwardWithSums(T* dy, float* column_sums, const T* pre_activation,
                                       int64_t rows, int64_t columns,
                                       kernels::Activation activation, bool add, void* workspace,
                                       cudaStream_t stream) {
  if (columns == 0) return cudaSuccess;
  float* partials = static_cast<float*>(workspace);
  cudaError_t error = cudaErrorInvalidValue;
  if (activation == kernels::Activation::kRelu) {
    error = LaunchBackwardSums<T, kernels::Activation::kRelu>(partials, dy, pre_activation, rows,
                                                              columns, stream);
  } else if (activation == kernels::Activation::kGeluTanh) {
    error = LaunchBackwardSums<T, kernels::Activation::kGeluTanh>(partials, dy, pre_activation,
                                                                  rows, columns, stream);
  }
  if (error != cudaSuccess || column_sums == nullptr) return error;
  return CombineColumnSums(column_sums, rows, columns, add, workspace, stream);
}

template <typename T>
cudaError_t Activate(T* y, const T* x, int64_t n, kernels::Activation activation,
                     cudaStream_t stream) {
  const bool aligned = AreVectorsAligned(y, x);
  switch (activation) {
    case kernels::Activation::kNone:
      return MapVectors<kVectorLanes<T>>(ActivateOperation<T, kernels::Activation::kNone>{y, x}, n,
                                         aligned, stream);
    case kernels::Activation::kRelu:
      return MapVectors<kVectorLanes<T>>(ActivateOperation<T, kernels::Activation::kRelu>{y, x}, n,
                                         aligned, stream);
    case kernels::Activation::kGeluTanh:
      return MapVectors<kVectorLanes<T>>(ActivateOperation<T, kernels::Activation::kGeluTanh>{y, x},
                                         n, aligned, stream);
  }
  return cudaErrorInvalidValue;
}

template cudaError_t BiasActivation(float*, float*, const float*, int64_t, int64_t,
                                    kernels::Activation, cudaStream_t);
template cudaError_t BiasActivation(__nv_bfloat16*, __nv_bfloat16*, const __nv_bfloat16*, int64_t,
                                    int64_t, kernels::Activation, cudaStream_t);
template cudaError_t ActivationBackward(float*, const float*, int64_t, kernels::Activation,
                                        cudaStream_t);
template cudaError_t ActivationBackward(__nv_bfloat16*, const __nv_bfloat16*, int64_t,
                                        kernels::Activation, cudaStream_t);
template cudaError_t ActivationBackwardWithSums(float*, float*, const float*, int64_t, int64_t,
                                                kernels::Activation, bool, void*, cudaStream_t);
template cudaError_t ActivationBackwardWithSums(__nv_bfloat16*, float*, const __nv_bfloat16*,
                                                int64_t, int64_t, kernels::Activation, bool, void*,
                                                cudaStream_t);
template cudaError_t Activate(float*, const float*, int64_t, kernels::Activation, cudaStream_t);
template cudaError_t Activate(__nv_bfloat16*, const __nv_bfloat16*, int64_t, kernels::Activation,
                              cudaStream_t);

}  // namespace lodestar::cuda
