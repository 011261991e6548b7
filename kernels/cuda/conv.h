// 3x3 convolutions, stride 1, padding 1, as matrix products over unfolded patches; here is all but
// the products. Some samples are taken at a time, so that the patches fit a bounded workspace:
//   forward   patches = Unfold(x), products = w patches, y = AddBiasRelu(products)
//   backward  gradient = ReluGradient(dy, y), patches = Unfold(x), dw += gradient patches^T,
//             db += row sums of gradient, patches = w^T gradient, dx = Fold(patches)
// x, dx [samples, in_channels, height, width]; y, dy [samples, out_channels, height, width]; w
// [out_channels, in_channels * 9]; bias, db [out_channels]; patches [in_channels * 9, columns];
// products, gradient [out_channels, columns]; columns = samples * height * width, pixels of a
// sample side by side.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

// How many samples to take at a time, at least 1.
int64_t ConvSamplesPerPass(const kernels::ConvShape& shape);
// Elements of patches and of products (or gradient) of one pass.
int64_t ConvPatchElements(const kernels::ConvShape& shape);
int64_t ConvProductElements(const kernels::ConvShape& shape);

// T: float, __nv_bfloat16. shape.samples: those of the pass, at least 1. Channels < 2^16.

// patches[in * 9 + tap][pixel] = x[in][pixel moved by tap], 0 outside.
template <typename T>
cudaError_t Unfold(T* patches, const T* x, const kernels::ConvShape& shape, cudaStream_t stream);
// The adjoint: dx is set to the sums, in fp32, over taps.
template <typename T>
cudaError_t Fold(T* dx, const T* patches, const kernels::ConvShape& shape, cudaStream_t stream);
// y = relu(products + bias)
template <typename T>
cudaError_t AddBiasRelu(T* y, const T* products, const T* bias, const kernels::ConvShape& shape,
                        cudaStream_t stream);
// dy = 0 where y is not positive; the same in the order of products.
template <typename T>
cudaError_t ReluGradient(T* gradient, T* dy, const T* y, const kernels::ConvShape& shape,
                         cudaStream_t stream);

}  // namespace lodestar::cuda
