// SPDX-License-Identifier: Apache-2.0

// Maxima of 2x2 windows, as Device::MaxPoolForward() and Device::MaxPoolBackward() describe them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar::cuda {

// Shapes: x, dx [planes, height, width]; y, dy, argmax [planes, height / 2, width / 2], rounded
// down. T is float or __nv_bfloat16.
template <typename T>
cudaError_t MaxPoolForward(T* y, uint8_t* argmax, const T* x, int64_t planes, int64_t height,
                           int64_t width, cudaStream_t stream);
template <typename T>
cudaError_t MaxPoolBackward(T* dx, const T* dy, const uint8_t* argmax, int64_t planes,
                            int64_t height, int64_t width, cudaStream_t stream);

}  // namespace lodestar::cuda
