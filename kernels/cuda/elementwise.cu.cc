// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/elementwise.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/vector_map.h"

namespace lodestar::cuda {
namespace {

template <typename T>
struct FillOperation {
  T* y;  // [n]
  T value;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    Lanes<T, kLanes> lanes;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) lanes.at[k] = value;
    *reinterpret_cast<Lanes<T, kLanes>*>(y + i) = lanes;
  }
};

template <typename To, typename From, typename Scale>
__device__ inline To Scaled(From x, Scale scale) {
  if constexpr (std::is_same_v<From, double>) {
    return FromFloat<To>(static_cast<float>(x * scale));
  } else if constexpr (std::is_same_v<Scale, double>) {
    return static_cast<To>(static_cast<double>(ToFloat(x)) * scale);
  } else {
    return FromFloat<To>(ToFloat(x) * scale);
  }
}
template <>
__device__ inline double Scaled<double, double, double>(double x, double scale) {
  return x * scale;
}

// Scales and converts elements. kLanes elements of the narrower type have at most 16 bytes. The
// same number of elements of the wider type may need two or four accesses of 16 bytes.
template <typename To, typename From, typename Scale>
struct CastOperation {
  To* y;          // [n]
  const From* x;  // [n]
  Scale scale;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    constexpr int kStep = kLanes < kMaxStep ? kLanes : kMaxStep;
    Lanes<From, kStep> in[kLanes / kStep];
#pragma unroll
    for (int k = 0; k < kLanes / kStep; ++k) {
      in[k] = *reinterpret_cast<const Lanes<From, kStep>*>(x + i + k * kStep);
    }
#pragma unroll
    for (int k = 0; k < kLanes / kStep; ++k) {
      Lanes<To, kStep> out;
#pragma unroll
      for (int lane = 0; lane < kStep; ++lane) {
        out.at[lane] = Scaled<To, From, Scale>(in[k].at[lane], scale);
      }
      *reinterpret_cast<Lanes<To, kStep>*>(y + i + k * kStep) = out;
    }
  }

 private:
  static constexpr int kMaxStep =
      kVectorLanes<To> < kVectorLanes<From> ? kVectorLanes<To> : kVectorLanes<From>;
};

struct AddScaledOperation {
  float* y;        // [n]
  const float* x;  // [n]
  float a;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float sum[kLanes];
    float addend[kLanes];
    Load(sum, y + i);
    Load(addend, x + i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) sum[k] = fmaf(a, addend[k], sum[k]);
    Store(y + i, sum);
  }
};

struct SubtractOperation {
  float* z;        // [n]
  const float* x;  // [n]
  const float* y;  // [n]

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float difference[kLanes];
    float subtrahend[kLanes];
    Load(difference, x + i);
    Load(subtrahend, y + i);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) difference[k] -= subtrahend[k];
    Store(z + i, difference);
  }
};

template <typename T>
T HostValue(double value) {
  return static_cast<T>(value);
}
template <>
__nv_bfloat16 HostValue<__nv_bfloat16>(double value) {
  return __float2bfloat16_rn(static_cast<float>(value));
}
template <>
__half HostValue<__half>(double value) {
  return __float2half_rn(static_cast<float>(value));
}

}  // namespace

template <typename T>
cudaError_t Fill(T* y, double value, int64_t n, cudaStream_t stream) {
  return MapVectors<kVectorLanes<T>>(FillOperation<T>{y, HostValue<T>(value)}, n,
                                     AreVectorsAligned(y), stream);
}

template <typename To, typename From>
cudaError_t Cast(To* y, const From* x, double scale, int64_t n, cudaStream_t stream) {
  constexpr bool kHasDouble = std::is_same_v<To, double> || std::is_same_v<From, double>;
  using Scale = std::conditional_t<kHasDouble, double, float>;
  constexpr int kLanes =
      kVectorLanes < To >> kVectorLanes<From> ? kVectorLanes<To> : kVectorLanes<From>;
  return MapVectors<kLanes>(CastOperation<To, From, Scale>{y, x, static_cast<Scale>(scale)}, n,
                            AreVectorsAligned(y, x), stream);
}

cudaError_t AddScaled(float* y, const float* x, double a, int64_t n, cudaStream_t stream) {
  return MapVectors<kVectorLanes<float>>(AddScaledOperation{y, x, static_cast<float>(a)}, n,
                                         AreVectorsAligned(y, x), stream);
}

cudaError_t Subtract(float* z, const float* x, const float* y, int64_t n, cudaStream_t stream) {
  return MapVectors<kVectorLanes<float>>(SubtractOperation{z, x, y}, n, AreVectorsAligned(z, x, y),
                                         stream);
}

template cudaError_t Fill(float*, double, int64_t, cudaStream_t);
template cudaError_t Fill(double*, double, int64_t, cudaStream_t);
template cudaError_t Fill(__nv_bfloat16*, double, int64_t, cudaStream_t);
template cudaError_t Fill(__half*, double, int64_t, cudaStream_t);
template cudaError_t Fill(int32_t*, double, int64_t, cudaStream_t);
template cudaError_t Fill(uint8_t*, double, int64_t, cudaStream_t);
template cudaError_t Cast(float*, const float*, double, int64_t, cudaStream_t);
template cudaError_t Cast(float*, const double*, double, int64_t, cudaStream_t);
template cudaError_t Cast(float*, const __nv_bfloat16*, double, int64_t, cudaStream_t);
template cudaError_t Cast(float*, const __half*, double, int64_t, cudaStream_t);
template cudaError_t Cast(double*, const float*, double, int64_t, cudaStream_t);
template cudaError_t Cast(double*, const double*, double, int64_t, cudaStream_t);
template cudaError_t Cast(double*, const __nv_bfloat16*, double, int64_t, cudaStream_t);
template cudaError_t Cast(double*, const __half*, double, int64_t, cudaStream_t);
template cudaError_t Cast(__nv_bfloat16*, const float*, double, int64_t, cudaStream_t);
template cudaError_t Cast(__nv_bfloat16*, const double*, double, int64_t, cudaStream_t);
template cudaError_t Cast(__nv_bfloat16*, const __nv_bfloat16*, double, int64_t, cudaStream_t);
template cudaError_t Cast(__nv_bfloat16*, const __half*, double, int64_t, cudaStream_t);
template cudaError_t Cast(__half*, const float*, double, int64_t, cudaStream_t);
template cudaError_t Cast(__half*, const double*, double, int64_t, cudaStream_t);
template cudaError_t Cast(__half*, const __nv_bfloat16*, double, int64_t, cudaStream_t);
template cudaError_t Cast(__half*, const __half*, double, int64_t, cudaStream_t);

}  // namespace lodestar::cuda
