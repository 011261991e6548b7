// SPDX-License-Identifier: Apache-2.0

// Computes how much workspace the operations of a CUDA card need. The functions need no card, so
// that the memory use of a model can be planned on a machine without a card.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/buf.h"
#include "kernels/operation_arguments.h"

namespace lodestar::kernels {

// Returns what Device::AttentionWorkspaceElements() returns on a card that computes in `dtype`.
inline int64_t CardAttentionWorkspaceElements(const AttentionShape& shape, DType dtype) {
  const int64_t bytes =
      (shape.batch * shape.heads * shape.tokens + 1) * static_cast<int64_t>(sizeof(float));
  return bytes / static_cast<int64_t>(DTypeBytes(dtype));
}

// Returns how many samples of a convolution a card processes in one pass, at least 1.
inline int64_t CardConvSamplesPerPass(const ConvShape& shape) {
  // Limit of the elements of one pass. As fp32 they are 32 MiB, several times as much as a large
  // device needs to be busy. With this limit, indices of columns fit into 32 bits.
  constexpr int64_t kPatchElementsPerPass = int64_t{8} << 20;
  const int64_t per_sample =
      std::max(shape.workspace_elements(), shape.out_channels * shape.height * shape.width);
  const int64_t fitting = kPatchElementsPerPass / std::max<int64_t>(1, per_sample);
  return std::max<int64_t>(1, std::min(shape.samples, fitting));
}

// Returns what Device::ConvWorkspaceElements() returns on a card: the number of elements of the
// patches and products of the samples of one pass.
inline int64_t CardConvWorkspaceElements(const ConvShape& shape) {
  const int64_t samples = CardConvSamplesPerPass(shape);
  return samples * (shape.workspace_elements() + shape.out_channels * shape.height * shape.width);
}

}  // namespace lodestar::kernels
