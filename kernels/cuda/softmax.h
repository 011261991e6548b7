// The loss over classes, fused with its gradient; see Device::SoftmaxCrossEntropy.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lodestar::cuda {

// losses, correct (may be null, which is faster), targets [rows]; logits [rows, row_stride],
// classes <= row_stride < 2^31, of which the columns beyond `classes` are not read. T: float,
// __nv_bfloat16; computed in fp32. If `scale` is not 0, logits become (softmax - onehot) * scale,
// and 0 beyond `classes`. A target outside [0, classes), which a kernel cannot report, gives NaN
// for the loss and the gradient.
template <typename T>
cudaError_t SoftmaxCrossEntropy(float* losses, int32_t* correct, T* logits, const int32_t* targets,
                                int64_t rows, int64_t classes, int64_t row_stride, double scale,
                                cudaStream_t stream);

}  // namespace lodestar::cuda
