// Layer normalisation with the residual sum before it; see Device::ResidualNormForward and
// Device::NormBackward for what is computed.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace lodestar::cuda {

// y, sum, a, b, dx, dy [rows, width]; mean, rstd [rows]; gamma, beta, dgamma, dbeta [width]. T:
// float, __nv_bfloat16; statistics and sums in fp32. Rows of whole 16-byte vectors at aligned
// addresses are read once, up to 2048 elements (backward: 4096).

// `b` may be null; `sum` may then be `a`. The statistics are those of `sum` as it is stored.
template <typename T>
cudaError_t ResidualNormForward(T* y, T* sum, float* mean, float* rstd, const T* a, const T* b,
                                const T* gamma, const T* beta, int64_t rows, int64_t width,
                                cudaStream_t stream);

// Device memory, 16-byte aligned.
size_t NormBackwardWorkspaceBytes(int64_t rows, int64_t width);
// dx is set or added to, dgamma and dbeta (fp32) too.
template <typename T>
cudaError_t NormBackward(T* dx, float* dgamma, float* dbeta, const T* dy, const T* sum,
                         const float* mean, const float* rstd, const T* gamma, int64_t rows,
                         int64_t width, bool add_to_dx, bool add_to_weights, void* workspace,
                         cudaStream_t stream);

}  // namespace lodestar::cuda
