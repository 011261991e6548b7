// SPDX-License-Identifier: Apache-2.0

// Dropout of activations, as Device::Dropout() describes it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/dropout_mask.h"

namespace lodestar::cuda {

// y and x are [n], and y may be x. T is float or __nv_bfloat16. Calls are fastest if
// mask.first_element is a multiple of 4.
template <typename T>
cudaError_t Dropout(T* y, const T* x, int64_t n, const kernels::DropoutMask& mask,
                    cudaStream_t stream);

}  // namespace lodestar::cuda
