// SPDX-License-Identifier: Apache-2.0

// The loss over classes, fused with its gradient, as Device::SoftmaxCrossEntropy() describes it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar::cuda {

// Shapes: losses, correct, targets [rows]; logits [rows, row_stride], where classes <= row_stride <
// 2^31. Columns from `classes` on are padding and are not read. If `correct` is null, it is not
// computed, which is faster. T is float or __nv_bfloat16. Results are computed in fp32.
//
// If `scale` is not 0, logits are overwritten by (softmax - onehot) * scale, and the padding by 0.
// If a target is outside [0, classes), the loss and the gradient of its row are NaN, because a
// kernel cannot report an error.
template <typename T>
cudaError_t SoftmaxCrossEntropy(float* losses, int32_t* correct, T* logits, const int32_t* targets,
                                int64_t rows, int64_t classes, int64_t row_stride, double scale,
                                cudaStream_t stream);

}  // namespace lodestar::cuda
