// cuDNN's fused attention. Its forward pass keeps what ours keeps, the natural logarithm of the sum
// of exponentials per query ("stats"), so the two passes may be of different versions.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/attention_library.h"
#include "kernels/cuda/cudnn_graph.h"

namespace lodestar::cuda {

class CudnnAttention final : public AttentionLibrary {
 public:
  explicit CudnnAttention(std::shared_ptr<const CudnnTarget> target) : target_(std::move(target)) {}

  std::string name() const override { return CudnnName(target_->api()); }
  // Unimplemented also for versions before 9.16 where tokens are no multiple of 128.
  absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(
      AttentionPass pass, const kernels::AttentionShape& shape) override;

 private:
  const std::shared_ptr<const CudnnTarget> target_;
};

}  // namespace lodestar::cuda
