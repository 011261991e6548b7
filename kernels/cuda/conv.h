// SPDX-License-Identifier: Apache-2.0

// 3x3 convolutions, stride 1, padding 1, as matrix products over unfolded patches. The functions
// here do all steps except the products. One pass processes only some of the samples, so that the
// patches need a limited workspace:
//   forward   patches = Unfold(x), products = w patches, y = AddBiasRelu(products)
//   backward  gradient = ReluGradient(dy, y), patches = Unfold(x), dw += gradient patches^T,
//             db += row sums of gradient, patches = w^T gradient, dx = Fold(patches)
// Shapes:
// - x, dx [samples, in_channels, height, width]; y, dy [samples, out_channels, height, width]
// - w [out_channels, in_channels * 9]; bias, db [out_channels]
// - patches [in_channels * 9, columns]; products, gradient [out_channels, columns]
// There is one column per pixel: columns = samples * height * width. The first columns are the
// pixels of the first sample.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

// Returns the number of samples of a pass, at least 1.
int64_t ConvSamplesPerPass(const kernels::ConvShape& shape);
// Return the number of elements of `patches`, and of `products` or `gradient`, of one pass.
int64_t ConvPatchElements(const kernels::ConvShape& shape);
int64_t ConvProductElements(const kernels::ConvShape& shape);

// In the functions below, T is float or __nv_bfloat16. shape.samples is the number of samples of
// the pass, at least 1. Channels are fewer than 2^16.

// Sets patches[in * 9 + tap][pixel] to a neighbour of the pixel in channel `in` of x. `tap` chooses
// the neighbour. Tap 4 is the pixel itself. A neighbour outside of the image counts as 0.
template <typename T>
cudaError_t Unfold(T* patches, const T* x, const kernels::ConvShape& shape, cudaStream_t stream);
// Sets each pixel of dx to the sum of the patch elements to which Unfold() copies this pixel. Sums
// are in fp32.
template <typename T>
cudaError_t Fold(T* dx, const T* patches, const kernels::ConvShape& shape, cudaStream_t stream);
// Computes y = relu(products + bias).
template <typename T>
cudaError_t AddBiasRelu(T* y, const T* products, const T* bias, const kernels::ConvShape& shape,
                        cudaStream_t stream);
// Sets dy to 0 where y is not positive. Also stores the new dy in `gradient`, as [out_channels,
// columns].
template <typename T>
cudaError_t ReluGradient(T* gradient, T* dy, const T* y, const kernels::ConvShape& shape,
                         cudaStream_t stream);

}  // namespace lodestar::cuda
