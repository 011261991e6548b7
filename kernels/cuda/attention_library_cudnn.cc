// SPDX-License-Identifier: Apache-2.0

#include <utility>

#include "kernels/cuda/attention_library_factory.h"
#include "kernels/cuda/cudnn_api.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/cudnn_graph.h"

namespace lodestar::cuda {

absl::StatusOr<std::unique_ptr<AttentionLibrary>> LoadAttentionLibrary() {
  absl::StatusOr<std::shared_ptr<const CudnnApi>> api = LoadCudnn();
  if (!api.ok()) return api.status();
  auto target = CudnnTarget::PresentDevice(*std::move(api));
  if (!target.ok()) return target.status();
  return std::make_unique<CudnnAttention>(*std::move(target));
}

}  // namespace lodestar::cuda
