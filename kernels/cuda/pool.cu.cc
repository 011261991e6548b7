// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/pool.h"

#include <cuda_bf16.h>

#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/vector_map.h"

namespace lodestar::cuda {
namespace {

template <typename T>
struct MaxPoolOperation {
  T* y;             // [planes, height / 2, width / 2]
  uint8_t* argmax;  // [planes, height / 2, width / 2]
  const T* x;       // [planes, height, width]
  int64_t height;
  int64_t width;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    static_assert(kLanes == 1);
    const int64_t rows = height / 2;
    const int64_t columns = width / 2;
    const int64_t line = Quotient(i, columns);
    const int64_t plane = Quotient(line, rows);
    const T* top =
        x + (plane * height + (line - plane * rows) * 2) * width + (i - line * columns) * 2;
    T largest = top[0];
    int best = 0;
#pragma unroll
    for (int k = 1; k < 4; ++k) {
      const T value = top[k / 2 * width + k % 2];
      if (ToFloat(value) > ToFloat(largest)) {
        largest = value;
        best = k;
      }
    }
    y[i] = largest;
    argmax[i] = static_cast<uint8_t>(best);
  }
};

// Each thread handles some elements of dx. An element is in at most one window.
template <typename T>
struct MaxPoolBackwardOperation {
  T* dx;                  // [planes, height, width]
  const T* dy;            // [planes, height / 2, width / 2]
  const uint8_t* argmax;  // [planes, height / 2, width / 2]
  int64_t height;
  int64_t width;

  template <int kLanes>
  __device__ void Do(int64_t i) const {
    static_assert(kLanes == 1);
    const int64_t rows = height / 2;
    const int64_t columns = width / 2;
    const int64_t line = Quotient(i, width);
    const int64_t plane = Quotient(line, height);
    const int64_t row = line - plane * height;
    const int64_t column = i - line * width;
    const int64_t window = (plane * rows + row / 2) * columns + column / 2;
    const bool is_pooled = row / 2 < rows && column / 2 < columns;
    const bool is_largest = is_pooled && argmax[window] == row % 2 * 2 + column % 2;
    dx[i] = is_largest ? dy[window] : FromFloat<T>(0.0f);
  }
};

}  // namespace

template <typename T>
cudaError_t MaxPoolForward(T* y, uint8_t* argmax, const T* x, int64_t planes, int64_t height,
                           int64_t width, cudaStream_t stream) {
  return Map<1>(MaxPoolOperation<T>{y, argmax, x, height, width},
                planes * (height / 2) * (width / 2), stream);
}

template <typename T>
cudaError_t MaxPoolBackward(T* dx, const T* dy, const uint8_t* argmax, int64_t planes,
                            int64_t height, int64_t width, cudaStream_t stream) {
  return Map<1>(MaxPoolBackwardOperation<T>{dx, dy, argmax, height, width}, planes * height * width,
                stream);
}

template cudaError_t MaxPoolForward(float*, uint8_t*, const float*, int64_t, int64_t, int64_t,
                                    cudaStream_t);
template cudaError_t MaxPoolForward(__nv_bfloat16*, uint8_t*, const __nv_bfloat16*, int64_t,
                                    int64_t, int64_t, cudaStream_t);
template cudaError_t MaxPoolBackward(float*, const float*, const uint8_t*, int64_t, int64_t,
                                     int64_t, cudaStream_t);
template cudaError_t MaxPoolBackward(__nv_bfloat16*, const __nv_bfloat16*, const uint8_t*, int64_t,
                                     int64_t, int64_t, cudaStream_t);

}  // namespace lodestar::cuda
