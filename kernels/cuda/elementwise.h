// SPDX-License-Identifier: Apache-2.0

// Vectors: fill, convert, add, subtract. Functions queue kernels on `stream` and return the error
// of the launch. Vectors are [n], and n may be 0. No alignment is required, but 16-byte aligned
// pointers are faster.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar::cuda {

// Sets all elements of y to `value`. T is float, double, __nv_bfloat16, __half, int32_t or uint8_t.
template <typename T>
cudaError_t Fill(T* y, double value, int64_t n, cudaStream_t stream);

// Computes y [n] = scale * x [n]. The types are any two of float, double, __nv_bfloat16 and __half.
// If one type is double, the product is in fp64, otherwise in fp32. The product is rounded once, to
// nearest even. y may be x, but must not overlap x in another way.
template <typename To, typename From>
cudaError_t Cast(To* y, const From* x, double scale, int64_t n, cudaStream_t stream);

// Computes y += a * x.
cudaError_t AddScaled(float* y, const float* x, double a, int64_t n, cudaStream_t stream);
// Computes z = x - y. z may be x or y.
cudaError_t Subtract(float* z, const float* x, const float* y, int64_t n, cudaStream_t stream);

}  // namespace lodestar::cuda
