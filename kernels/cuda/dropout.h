// Dropout of activations; see Device::Dropout.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/dropout_mask.h"

namespace lodestar::cuda {

// y, x [n]; T: float, __nv_bfloat16. y may be x. Fastest where mask.first_element is a multiple
// of 4.
template <typename T>
cudaError_t Dropout(T* y, const T* x, int64_t n, const kernels::DropoutMask& mask,
                    cudaStream_t stream);

}  // namespace lodestar::cuda
