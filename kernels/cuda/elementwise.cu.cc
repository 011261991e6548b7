#include "kernels/cuda/elementwise.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

}  // namespace lodestar::cuda
