// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/dropout.h"

#include <cuda_bf16.h>

#include "kernels/cuda/vector_access.h"
#include "kernels/cuda/vector_map.h"

namespace lodestar::cuda {
namespace {

// Number of elements for which one block of random words is enough.
constexpr int kWords = 4;

template <typename T>
struct DropoutOperation {
  T* y;        // [n]
  const T* x;  // [n]
  kernels::DropoutMask mask;
  uint32_t threshold;
  float scale;

  // Handles kLanes elements. If kLanes is above 1, a block of random words must begin at element i.
  template <int kLanes>
  __device__ void Do(int64_t i) const {
    float values[kLanes];
    Load(values, x + i);
    const int64_t element = mask.first_element + i;
    if constexpr (kLanes == 1) {
      const uint32_t word = kernels::DropoutWords(mask, element / kWords).word[element % kWords];
      values[0] = word >= threshold ? values[0] * scale : 0.0f;
    } else {
#pragma unroll
      for (int first = 0; first < kLanes; first += kWords) {
        const PhiloxWords words = kernels::DropoutWords(mask, (element + first) / kWords);
#pragma unroll
        for (int k = 0; k < kWords; ++k) {
          float& value = values[first + k];
          value = words.word[k] >= threshold ? value * scale : 0.0f;
        }
      }
    }
    Store(y + i, values);
  }
};

}  // namespace

template <typename T>
cudaError_t Dropout(T* y, const T* x, int64_t n, const kernels::DropoutMask& mask,
                    cudaStream_t stream) {
  const DropoutOperation<T> operation{y, x, mask, kernels::DropoutThreshold(mask.rate),
                                      static_cast<float>(kernels::DropoutScale(mask.rate))};
  const bool aligned = mask.first_element % kWords == 0 && AreVectorsAligned(y, x);
  return MapVectors<kVectorLanes<T>>(operation, n, aligned, stream);
}

template cudaError_t Dropout(float*, const float*, int64_t, const kernels::DropoutMask&,
                             cudaStream_t);
template cudaError_t Dropout(__nv_bfloat16*, const __nv_bfloat16*, int64_t,
                             const kernels::DropoutMask&, cudaStream_t);

}  // namespace lodestar::cuda
