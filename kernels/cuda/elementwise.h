// Vectors: filling, conversion, sums, differences. Launchers queue on `stream` and return what the
// launch returned; vectors are [n], and n may be 0. No alignment is required; 16-byte aligned
// pointers are faster.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar::cuda {

// y = value. T: float, double, __nv_bfloat16, __half, int32_t, uint8_t.
template <typename T>
cudaError_t Fill(T* y, double value, int64_t n, cudaStream_t stream);

// y [n] = scale * x [n], between any two of float, double, __nv_bfloat16, __half: computed in fp32,
// or in fp64 where one of the two is double, and rounded once to nearest even. y must not overlap x
// unless it is x.
template <typename To, typename From>
cudaError_t Cast(To* y, const From* x, double scale, int64_t n, cudaStream_t stream);

// y += a * x
cudaError_t AddScaled(float* y, const float* x, double a, int64_t n, cudaStream_t stream);
// z = x - y; z may be x or y.
cudaError_t Subtract(float* z, const float* x, const float* y, int64_t n, cudaStream_t stream);

}  // namespace lodestar::cuda
