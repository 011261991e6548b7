// Workspaces of the operations of a CUDA card, as numbers: they are needed where no card is, too,
// to say what a model would take on one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/buf.h"
#include "kernels/operation_arguments.h"

namespace lodestar::kernels {

// As Device::AttentionWorkspaceElements() of a card that computes in `dtype`.
inline int64_t CardAttentionWorkspaceElements(const AttentionShape& shape, DType dtype) {
  const int64_t bytes =
      (shape.batch * shape.heads * shape.tokens + 1) * static_cast<int64_t>(sizeof(float));
  return bytes / static_cast<int64_t>(DTypeBytes(dtype));
}

// Samples of a convolution that a card takes at a time, at least 1.
inline int64_t CardConvSamplesPerPass(const ConvShape& shape) {
  // 32 MiB of fp32, several times what fills a large device; also keeps columns in 32 bits.
  constexpr int64_t kPatchElementsPerPass = int64_t{8} << 20;
  const int64_t per_sample =
      std::max(shape.workspace_elements(), shape.out_channels * shape.height * shape.width);
  const int64_t fitting = kPatchElementsPerPass / std::max<int64_t>(1, per_sample);
  return std::max<int64_t>(1, std::min(shape.samples, fitting));
}

// As Device::ConvWorkspaceElements() of a card: patches and products of one pass.
inline int64_t CardConvWorkspaceElements(const ConvShape& shape) {
  const int64_t samples = CardConvSamplesPerPass(shape);
  return samples * (shape.workspace_elements() + shape.out_channels * shape.height * shape.width);
}

}  // namespace lodestar::kernels
