// SPDX-License-Identifier: Apache-2.0

// Replaces cuDNN in the plugin on an emulated card. Our kernels compute its attention. With the
// environment variable LODESTAR_STAND_IN_ATTENTION=missing, the library cannot be loaded. With
// LODESTAR_STAND_IN_ATTENTION=refuses, it makes no plans.
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_library_factory.h"

namespace lodestar::cuda {
namespace {

constexpr int kComputeCapability = 90;
constexpr int64_t kBf16Bytes = 2;

bool IsToldTo(absl::string_view what) {
  const char* const told = std::getenv("LODESTAR_STAND_IN_ATTENTION");
  return told != nullptr && what == told;
}

class StandInPlan final : public AttentionPlan {
 public:
  StandInPlan(AttentionPass pass, const kernels::AttentionShape& shape)
      : pass_(pass), shape_(shape) {}

  size_t workspace_bytes() const override {
    return static_cast<size_t>(CudaAttention::WorkspaceElements(shape_, kernels::DType::kBf16) *
                               kBf16Bytes);
  }

  absl::Status Run(const AttentionTensors& tensors, void* workspace, cudaStream_t stream) override {
    const int64_t outputs = shape_.batch * shape_.tokens * shape_.heads * shape_.head_width;
    const auto bf16 = [](const void* data, int64_t n) {
      return kernels::Buf{const_cast<void*>(data), kernels::DType::kBf16, n};
    };
    const kernels::Buf y = bf16(tensors.y, outputs), qkv = bf16(tensors.qkv, 3 * outputs);
    const kernels::Buf log_sum_exp{tensors.log_sum_exp, kernels::DType::kF32,
                                   shape_.batch * shape_.heads * shape_.tokens};
    const cudaError_t error =
        pass_ == AttentionPass::kForward
            ? kernels_.Forward(y, log_sum_exp, qkv, shape_, stream)
            : kernels_.Backward(
                  bf16(tensors.dqkv, 3 * outputs), bf16(tensors.dy, outputs), y, log_sum_exp, qkv,
                  bf16(workspace, CudaAttention::WorkspaceElements(shape_, kernels::DType::kBf16)),
                  shape_, stream);
    return error == cudaSuccess ? absl::OkStatus() : absl::InternalError("the stand-in has failed");
  }

 private:
  const CudaAttention kernels_{kComputeCapability};
  const AttentionPass pass_;
  const kernels::AttentionShape shape_;
};

class StandInLibrary final : public AttentionLibrary {
 public:
  std::string name() const override { return "cuDNN's stand-in"; }
  absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(
      AttentionPass pass, const kernels::AttentionShape& shape) override {
    if (IsToldTo("refuses")) return absl::UnimplementedError("the stand-in has nothing for this");
    return std::make_unique<StandInPlan>(pass, shape);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionLibrary>> LoadAttentionLibrary() {
  if (IsToldTo("missing")) return absl::NotFoundError("the stand-in is not there");
  return std::make_unique<StandInLibrary>();
}

}  // namespace lodestar::cuda
