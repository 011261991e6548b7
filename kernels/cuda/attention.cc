// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/attention.h"

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/card_workspace.h"
#include "kernels/cuda/attention_kernels.h"

namespace lodestar::cuda {
namespace {

// Minimum compute capability (8.0) for products in bf16 and cp.async.
constexpr int kTensorCoreCapability = 80;

bool IsAligned(const kernels::Buf& buf) { return reinterpret_cast<uintptr_t>(buf.data) % 16 == 0; }

// Returns true if the numbers of the shape fit into the 32-bit integers that kernels use.
bool Fits(const kernels::AttentionShape& shape) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  // Number of thread blocks for one head in the largest grid. Each block handles at least 64 tokens
  // and 64 columns.
  const int64_t tiles = (shape.tokens + 63) / 64 * ((shape.head_width + 63) / 64);
  return shape.tokens <= kMax - 128 && shape.batch * shape.heads * tiles <= kMax;
}

template <typename T>
AttentionCall<T> MakeCall(kernels::Buf y, kernels::Buf log_sum_exp, kernels::Buf qkv,
                          const kernels::AttentionShape& shape) {
  AttentionCall<T> call = {};
  call.qkv = qkv.as<const T>();
  call.y = y.as<T>();
  call.log_sum_exp = log_sum_exp.as<float>();
  call.batch = static_cast<int>(shape.batch);
  call.tokens = static_cast<int>(shape.tokens);
  call.heads = static_cast<int>(shape.heads);
  call.width = static_cast<int>(shape.head_width);
  call.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_width)));
  call.mask = shape.dropout;
  call.threshold = kernels::DropoutThreshold(shape.dropout.rate);
  call.keep_scale = static_cast<float>(kernels::DropoutScale(shape.dropout.rate));
  return call;
}

// Returns the first address in the workspace that is aligned for float. `delta`, one float per
// query and head, begins there.
float* DeltaIn(kernels::Buf workspace) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(workspace.data);
  constexpr uintptr_t kAlignment = alignof(float);
  return reinterpret_cast<float*>((address + kAlignment - 1) / kAlignment * kAlignment);
}

template <typename T>
AttentionCall<T> MakeBackwardCall(kernels::Buf dqkv, kernels::Buf dy, kernels::Buf y,
                                  kernels::Buf log_sum_exp, kernels::Buf qkv,
                                  kernels::Buf workspace, const kernels::AttentionShape& shape) {
  AttentionCall<T> call = MakeCall<T>(y, log_sum_exp, qkv, shape);
  call.dy = dy.as<const T>();
  call.dqkv = dqkv.as<T>();
  call.delta = DeltaIn(workspace);
  return call;
}

}  // namespace

AttentionVersion CudaAttention::VersionFor(kernels::DType dtype, int64_t head_width) const {
  return dtype == kernels::DType::kBf16 && (head_width == 64 || head_width == 128) &&
                 compute_capability_ >= kTensorCoreCapability
             ? AttentionVersion::kTensorCore
             : AttentionVersion::kFloat;
}

int64_t CudaAttention::WorkspaceElements(const kernels::AttentionShape& shape,
                                         kernels::DType dtype) {
  return kernels::CardAttentionWorkspaceElements(shape, dtype);
}

cudaError_t CudaAttention::Forward(kernels::Buf y, kernels::Buf log_sum_exp, kernels::Buf qkv,
                                   const kernels::AttentionShape& shape,
                                   cudaStream_t stream) const {
  if (!Fits(shape)) return cudaErrorInvalidConfiguration;
  if (qkv.dtype == kernels::DType::kF32) {
    return FloatAttentionForward(MakeCall<float>(y, log_sum_exp, qkv, shape), stream);
  }
  const auto call = MakeCall<__nv_bfloat16>(y, log_sum_exp, qkv, shape);
  const bool tensor_cores =
      VersionFor(qkv.dtype, shape.head_width) == AttentionVersion::kTensorCore;
  return tensor_cores && IsAligned(y) && IsAligned(qkv) ? TensorAttentionForward(call, stream)
                                                        : FloatAttentionForward(call, stream);
}

cudaError_t CudaAttention::Backward(kernels::Buf dqkv, kernels::Buf dy, kernels::Buf y,
                                    kernels::Buf log_sum_exp, kernels::Buf qkv,
                                    kernels::Buf workspace, const kernels::AttentionShape& shape,
                                    cudaStream_t stream) const {
  if (!Fits(shape)) return cudaErrorInvalidConfiguration;
  if (qkv.dtype == kernels::DType::kF32) {
    const auto call = MakeBackwardCall<float>(dqkv, dy, y, log_sum_exp, qkv, workspace, shape);
    const cudaError_t error = AttentionDelta(call, stream);
    return error != cudaSuccess ? error : FloatAttentionBackward(call, stream);
  }
  const auto call =
      MakeBackwardCall<__nv_bfloat16>(dqkv, dy, y, log_sum_exp, qkv, workspace, shape);
  const cudaError_t error = AttentionDelta(call, stream);
  if (error != cudaSuccess) return error;
  const bool tensor_cores =
      VersionFor(qkv.dtype, shape.head_width) == AttentionVersion::kTensorCore;
  const bool aligned = IsAligned(dqkv) && IsAligned(dy) && IsAligned(qkv);
  return tensor_cores && aligned ? TensorAttentionBackward(call, stream)
                                 : FloatAttentionBackward(call, stream);
}

}  // namespace lodestar::cuda
