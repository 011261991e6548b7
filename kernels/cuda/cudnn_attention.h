// SPDX-License-Identifier: Apache-2.0

// Attention by cuDNN. Its forward pass stores the same log_sum_exp as our kernels (cuDNN's
// "stats"). So one pass may be run by cuDNN and the other by our kernels.
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
  // Makes a plan. Errors: those of AttentionLibrary; Unimplemented (the version is older than 9.16
  // and the number of tokens is not a multiple of 128).
  absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(
      AttentionPass pass, const kernels::AttentionShape& shape) override;

 private:
  const std::shared_ptr<const CudnnTarget> target_;
};

}  // namespace lodestar::cuda
