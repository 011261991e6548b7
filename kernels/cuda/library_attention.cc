// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/library_attention.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/errors.h"

namespace lodestar::cuda {
namespace {

constexpr int64_t kBf16Bytes = 2;

bool IsAligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

// Returns the largest divisor of `batch` that is at most `most`. Requires: most >= 1.
int64_t DivisorUpTo(int64_t batch, int64_t most) {
  int64_t divisor = most;
  while (batch % divisor != 0) --divisor;
  return divisor;
}

// Returns the reason why a library cannot serve the call. Empty means that it can.
std::string WhyNot(const kernels::AttentionShape& shape, kernels::DType dtype,
                   const AttentionTensors& tensors) {
  if (dtype != kernels::DType::kBf16) return "libraries have attention in bf16 only";
  if (shape.dropout.rate > 0.0) return "libraries do not drop what our mask drops";
  if (shape.head_width % 8 != 0) {
    return absl::StrCat("heads of ", shape.head_width, " are not whole vectors of 16 bytes");
  }
  for (const void* tensor : {tensors.qkv, static_cast<const void*>(tensors.y), tensors.dy,
                             static_cast<const void*>(tensors.dqkv)}) {
    if (!IsAligned(tensor)) return "a tensor is not at a multiple of 16 bytes";
  }
  return "";
}

}  // namespace

bool LibraryAttention::Takes(const kernels::AttentionShape& shape, kernels::DType dtype,
                             const AttentionTensors& tensors, bool is_recording) {
  if (load_ == nullptr || shape.batch * shape.tokens * shape.heads * shape.head_width == 0) {
    return false;
  }
  std::string reason = WhyNot(shape, dtype, tensors);
  if (reason.empty() && !is_loaded_) {
    if (is_recording) return false;
    auto library = load_();
    const std::lock_guard lock(mutex_);
    is_loaded_ = true;
    library_ = std::move(library);
  }
  if (reason.empty() && library_.ok()) return true;
  const std::lock_guard lock(mutex_);
  reasons_.insert(reason.empty() ? std::string(library_.status().message()) : std::move(reason));
  return false;
}

absl::StatusOr<LibraryAttention::Planned> LibraryAttention::MakePlan(
    AttentionPass pass, kernels::AttentionShape shape) {
  const int64_t batch = shape.batch;
  while (true) {
    absl::StatusOr<std::unique_ptr<AttentionPlan>> plan = (*library_)->Plan(pass, shape);
    if (!plan.ok()) return plan.status();
    const size_t bytes = (*plan)->workspace_bytes();
    if (bytes <= kMostWorkspaceBytes) {
      return Planned{.plan = *std::move(plan), .samples = shape.batch};
    }
    if (shape.batch == 1) {
      return absl::ResourceExhaustedError(
          absl::StrCat("it needs ", bytes, " bytes of scratch memory for one sample, at most ",
                       kMostWorkspaceBytes, " are given"));
    }
    const double fitting = static_cast<double>(kMostWorkspaceBytes) / static_cast<double>(bytes) *
                           static_cast<double>(shape.batch);
    const int64_t most = std::clamp(static_cast<int64_t>(fitting), int64_t{1}, shape.batch - 1);
    shape.batch = DivisorUpTo(batch, most);
  }
}

absl::StatusOr<LibraryAttention::Planned*> LibraryAttention::PlanFor(
    AttentionPass pass, const kernels::AttentionShape& shape) {
  const Key key{pass, shape.batch, shape.tokens, shape.heads, shape.head_width};
  if (const auto it = plans_.find(key); it != plans_.end()) return &it->second;
  absl::StatusOr<Planned> planned = MakePlan(pass, shape);
  if (!planned.ok()) return planned.status();
  return &plans_.emplace(key, *std::move(planned)).first->second;
}

absl::Status LibraryAttention::Run(AttentionPass pass, const kernels::AttentionShape& shape,
                                   const AttentionTensors& tensors, Scratch scratch,
                                   cudaStream_t stream) {
  const absl::StatusOr<Planned*> planned = PlanFor(pass, shape);
  if (!planned.ok()) return planned.status();
  const auto& [plan, samples] = **planned;
  const absl::StatusOr<void*> workspace = scratch(plan->workspace_bytes());
  if (!workspace.ok()) return workspace.status();
  for (int64_t first = 0; first < shape.batch; first += samples) {
    if (plan->zeroed_bytes() > 0) {
      const cudaError_t error = cudaMemsetAsync(*workspace, 0, plan->zeroed_bytes(), stream);
      if (error != cudaSuccess) return CudaStatus("attention", error, "cudaMemsetAsync");
    }
    const absl::Status status = plan->Run(SamplesFrom(tensors, first, shape), *workspace, stream);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string LibraryAttention::Describe() const {
  const std::lock_guard lock(mutex_);
  std::string lines;
  if (is_loaded_ && library_.ok()) lines = absl::StrCat("attention: ", library_name(), " is there");
  for (const std::string& reason : reasons_) {
    absl::StrAppend(&lines, lines.empty() ? "" : "\n", "attention: own kernels (", reason, ")");
  }
  return lines;
}

AttentionTensors SamplesFrom(const AttentionTensors& tensors, int64_t first,
                             const kernels::AttentionShape& shape) {
  const int64_t output_bytes = first * shape.tokens * shape.heads * shape.head_width * kBf16Bytes;
  const auto at = [](auto* tensor, int64_t bytes) -> decltype(tensor) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(tensor)>>,
                                    const char, char>;
    return tensor == nullptr ? nullptr : static_cast<Byte*>(tensor) + bytes;
  };
  return {.qkv = at(tensors.qkv, 3 * output_bytes),
          .y = at(tensors.y, output_bytes),
          .log_sum_exp = tensors.log_sum_exp + first * shape.heads * shape.tokens,
          .dy = at(tensors.dy, output_bytes),
          .dqkv = at(tensors.dqkv, 3 * output_bytes)};
}

std::string NameOf(AttentionPass pass, const kernels::AttentionShape& shape) {
  const char* const name = pass == AttentionPass::kForward    ? "forward "
                           : pass == AttentionPass::kBackward ? "backward "
                                                              : "unordered backward ";
  return absl::StrCat("attention ", name, shape.batch, " x ", shape.tokens, " tokens, ",
                      shape.heads, " heads of ", shape.head_width);
}

}  // namespace lodestar::cuda
