// SPDX-License-Identifier: Apache-2.0

// Layer normalisation and the residual sum before it, as Device::ResidualNormForward() and
// Device::NormBackward() describe them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::cuda {

// Shapes: y, sum, a, b, dx, dy [rows, width]; mean, rstd [rows]; gamma, beta, dgamma, dbeta
// [width]. T is float or __nv_bfloat16. mean, rstd and all sums are computed in fp32. A row is read
// only once if it is aligned, consists of whole 16-byte vectors, and has at most 2048 elements
// (4096 in the backward pass).

// If `b` is null, sum = a, and `sum` may be the same memory as `a`. mean and rstd are computed from
// `sum` after its values are rounded to T.
template <typename T>
cudaError_t ResidualNormForward(T* y, T* sum, float* mean, float* rstd, const T* a, const T* b,
                                const T* gamma, const T* beta, int64_t rows, int64_t width,
                                cudaStream_t stream);

// Returns the size of the workspace, which is device memory, 16-byte aligned.
size_t NormBackwardWorkspaceBytes(int64_t rows, int64_t width);
// Sets dx, or adds to it. Sets dgamma and dbeta (fp32), or adds to them.
template <typename T>
cudaError_t NormBackward(T* dx, float* dgamma, float* dbeta, const T* dy, const T* sum,
                         const float* mean, const float* rstd, const T* gamma, int64_t rows,
                         int64_t width, bool add_to_dx, bool add_to_weights, void* workspace,
                         cudaStream_t stream);

}  // namespace lodestar::cuda
