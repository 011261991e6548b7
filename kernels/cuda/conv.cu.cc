// SPDX-License-Identifier: Apache-2.0

// In all kernels, a thread handles one column. A column is a pixel of a sample. blockIdx.y is a
// channel.
#include "kernels/cuda/conv.h"

#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/card_workspace.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector_access.h"

namespace lodestar::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTaps = 9;

struct Columns {
  int samples, height, width;
  int channels;  // number of channels of the images

  __device__ int plane() const { return height * width; }
  __device__ int count() const { return samples * plane(); }
};

// The column of this thread, and the sample, row and x that it belongs to.
struct Place {
  int column, sample, pixel, row, x;
};

__device__ inline bool FindPlace(const Columns& c, Place* place) {
  place->column = static_cast<int>(GlobalThread());
  if (place->column >= c.count()) return false;
  place->sample = place->column / c.plane();
  place->pixel = place->column - place->sample * c.plane();
  place->row = place->pixel / c.width;
  place->x = place->pixel - place->row * c.width;
  return true;
}

__device__ inline bool IsInside(const Columns& c, int row, int x) {
  return row >= 0 && row < c.height && x >= 0 && x < c.width;
}

// Returns the index in an image tensor of the block's channel and the thread's pixel.
__device__ inline int64_t ImageIndex(const Columns& c, const Place& place) {
  return (static_cast<int64_t>(place.sample) * c.channels + blockIdx.y) * c.plane() + place.pixel;
}
// Returns an index in a matrix that has `rows_per_channel` rows for each channel. The element is in
// row `row` of the block's channel, and in the thread's column.
__device__ inline int64_t MatrixIndex(const Columns& c, const Place& place, int rows_per_channel,
                                      int row) {
  return (static_cast<int64_t>(blockIdx.y) * rows_per_channel + row) * c.count() + place.column;
}

// Shapes in all kernels: images x, dx, y, dy are [samples, channels, height, width]; patches are
// [channels, kTaps, columns]; products and gradient are [channels, columns]; bias is [channels].
template <typename T>
__global__ void __launch_bounds__(kThreads) ConvUnfoldKernel(T* patches, const T* x, Columns c) {
  Place place;
  if (!FindPlace(c, &place)) return;
  const T* image = x + ImageIndex(c, place);
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    const int down = tap / 3 - 1;
    const int right = tap % 3 - 1;
    const bool inside = IsInside(c, place.row + down, place.x + right);
    patches[MatrixIndex(c, place, kTaps, tap)] =
        inside ? image[down * c.width + right] : FromFloat<T>(0.0f);
  }
}

// Sets the thread's pixel of dx to the sum of the patch elements that Unfold() copies from this
// pixel. Tap (down, right) copies it to the column of the pixel at (row - down, x - right).
template <typename T>
__global__ void __launch_bounds__(kThreads) ConvFoldKernel(T* dx, const T* patches, Columns c) {
  Place place;
  if (!FindPlace(c, &place)) return;
  float sum = 0.0f;
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    const int down = tap / 3 - 1;
    const int right = tap % 3 - 1;
    if (!IsInside(c, place.row - down, place.x - right)) continue;
    sum += ToFloat(patches[MatrixIndex(c, place, kTaps, tap) - down * c.width - right]);
  }
  dx[ImageIndex(c, place)] = FromFloat<T>(sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ConvBiasReluKernel(T* y, const T* products, const T* bias, Columns c) {
  Place place;
  if (!FindPlace(c, &place)) return;
  const float sum = ToFloat(products[MatrixIndex(c, place, 1, 0)]) + ToFloat(bias[blockIdx.y]);
  y[ImageIndex(c, place)] = FromFloat<T>(sum < 0.0f ? 0.0f : sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ConvReluGradientKernel(T* gradient, T* dy, const T* y, Columns c) {
  Place place;
  if (!FindPlace(c, &place)) return;
  const int64_t i = ImageIndex(c, place);
  const T value = ToFloat(y[i]) > 0.0f ? dy[i] : FromFloat<T>(0.0f);
  dy[i] = value;
  gradient[MatrixIndex(c, place, 1, 0)] = value;
}

Columns ColumnsOf(const kernels::ConvShape& s, int64_t channels) {
  return {static_cast<int>(s.samples), static_cast<int>(s.height), static_cast<int>(s.width),
          static_cast<int>(channels)};
}

LaunchConfig ConfigFor(const kernels::ConvShape& s, int64_t channels, cudaStream_t stream) {
  return {.grid = dim3(static_cast<unsigned>(CeilDiv(s.samples * s.height * s.width, kThreads)),
                       static_cast<unsigned>(channels)),
          .block = dim3(kThreads),
          .stream = stream};
}

int64_t ColumnsPerPass(const kernels::ConvShape& s) {
  return ConvSamplesPerPass(s) * s.height * s.width;
}

}  // namespace

int64_t ConvSamplesPerPass(const kernels::ConvShape& s) {
  return kernels::CardConvSamplesPerPass(s);
}

int64_t ConvPatchElements(const kernels::ConvShape& s) {
  return s.in_channels * kTaps * ColumnsPerPass(s);
}
int64_t ConvProductElements(const kernels::ConvShape& s) {
  return s.out_channels * ColumnsPerPass(s);
}

template <typename T>
cudaError_t Unfold(T* patches, const T* x, const kernels::ConvShape& s, cudaStream_t stream) {
  return Launch(ConvUnfoldKernel<T>, ConfigFor(s, s.in_channels, stream), patches, x,
                ColumnsOf(s, s.in_channels));
}

template <typename T>
cudaError_t Fold(T* dx, const T* patches, const kernels::ConvShape& s, cudaStream_t stream) {
  return Launch(ConvFoldKernel<T>, ConfigFor(s, s.in_channels, stream), dx, patches,
                ColumnsOf(s, s.in_channels));
}

template <typename T>
cudaError_t AddBiasRelu(T* y, const T* products, const T* bias, const kernels::ConvShape& s,
                        cudaStream_t stream) {
  return Launch(ConvBiasReluKernel<T>, ConfigFor(s, s.out_channels, stream), y, products, bias,
                ColumnsOf(s, s.out_channels));
}

template <typename T>
cudaError_t ReluGradient(T* gradient, T* dy, const T* y, const kernels::ConvShape& s,
                         cudaStream_t stream) {
  return Launch(ConvReluGradientKernel<T>, ConfigFor(s, s.out_channels, stream), gradient, dy, y,
                ColumnsOf(s, s.out_channels));
}

template cudaError_t Unfold(float*, const float*, const kernels::ConvShape&, cudaStream_t);
template cudaError_t Unfold(__nv_bfloat16*, const __nv_bfloat16*, const kernels::ConvShape&,
                            cudaStream_t);
template cudaError_t Fold(float*, const float*, const kernels::ConvShape&, cudaStream_t);
template cudaError_t Fold(__nv_bfloat16*, const __nv_bfloat16*, const kernels::ConvShape&,
                          cudaStream_t);
template cudaError_t AddBiasRelu(float*, const float*, const float*, const kernels::ConvShape&,
                                 cudaStream_t);
template cudaError_t AddBiasRelu(__nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*,
                                 const kernels::ConvShape&, cudaStream_t);
template cudaError_t ReluGradient(float*, float*, const float*, const kernels::ConvShape&,
                                  cudaStream_t);
template cudaError_t ReluGradient(__nv_bfloat16*, __nv_bfloat16*, const __nv_bfloat16*,
                                  const kernels::ConvShape&, cudaStream_t);

}  // namespace lodestar::cuda
