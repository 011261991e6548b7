// SPDX-License-Identifier: Apache-2.0

// Implements CudaDevice's attention, embedding and loss.
#include "absl/strings/str_cat.h"
#include "kernels/buffer_checks.h"
#include "kernels/cuda/attention_comparison.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/softmax.h"

namespace lodestar::cuda {

int64_t CudaDevice::AttentionWorkspaceElements(const kernels::AttentionShape& shape) {
  return CudaAttention::WorkspaceElements(shape, compute_);
}

void CudaDevice::AttentionForward(kernels::Buf y, kernels::Buf log_sum_exp, kernels::Buf qkv,
                                  kernels::Buf workspace, const kernels::AttentionShape& shape) {
  const int64_t outputs = shape.batch * shape.tokens * shape.heads * shape.head_width;
  kernels::CheckBuf(y, compute_, outputs);
  kernels::CheckBuf(log_sum_exp, kernels::DType::kF32, shape.batch * shape.heads * shape.tokens);
  kernels::CheckBuf(qkv, compute_, 3 * outputs);
  kernels::CheckBuf(workspace, compute_, AttentionWorkspaceElements(shape));
  RunAttention(AttentionPass::kForward, shape,
               {.qkv = qkv.data, .y = y.data, .log_sum_exp = log_sum_exp.as<float>()}, [&] {
                 Check(attention_.Forward(y, log_sum_exp, qkv, shape, Compute()),
                       "AttentionForward");
               });
}

void CudaDevice::AttentionBackward(kernels::Buf dqkv, kernels::Buf dy, kernels::Buf y,
                                   kernels::Buf log_sum_exp, kernels::Buf qkv,
                                   kernels::Buf workspace, const kernels::AttentionShape& shape) {
  const int64_t outputs = shape.batch * shape.tokens * shape.heads * shape.head_width;
  for (const kernels::Buf& buf : {dy, y}) kernels::CheckBuf(buf, compute_, outputs);
  for (const kernels::Buf& buf : {dqkv, qkv}) kernels::CheckBuf(buf, compute_, 3 * outputs);
  kernels::CheckBuf(log_sum_exp, kernels::DType::kF32, shape.batch * shape.heads * shape.tokens);
  kernels::CheckBuf(workspace, compute_, AttentionWorkspaceElements(shape));
  RunAttention(
      is_repeatable_ ? AttentionPass::kBackward : AttentionPass::kUnorderedBackward, shape,
      {.qkv = qkv.data,
       .y = y.data,
       .log_sum_exp = log_sum_exp.as<float>(),
       .dy = dy.data,
       .dqkv = dqkv.data},
      [&] {
        Check(attention_.Backward(dqkv, dy, y, log_sum_exp, qkv, workspace, shape, Compute()),
              "AttentionBackward");
      });
}

void CudaDevice::RunAttention(AttentionPass pass, const kernels::AttentionShape& shape,
                              const AttentionTensors& tensors, absl::FunctionRef<void()> own) {
  const cudaStream_t stream = Compute();
  if (!library_attention_.Takes(shape, compute_, tensors, is_recording_)) {
    own();
    return;
  }
  const auto by_library = [&] {
    return library_attention_.Run(
        pass, shape, tensors, [&](size_t bytes) { return TryScratch(bytes); }, stream);
  };
  const auto compare = [&] {
    return CompareWithOwnAttention(
        pass, shape, tensors, attention_, [&](size_t bytes) { return TryScratch(bytes); }, stream);
  };
  attention_choice_.RunFaster(
      absl::StrCat(NameOf(pass, shape), ", ", library_attention_.library_name()), is_recording_,
      stream, by_library, own, compare);
}

void CudaDevice::EmbedForward(kernels::Buf y, kernels::Buf tokens, kernels::Buf token_table,
                              kernels::Buf position_table, int64_t rows, int64_t context_tokens,
                              int64_t width) {
  kernels::CheckBuf(y, compute_, rows * width);
  kernels::CheckBuf(tokens, kernels::DType::kI32, rows);
  kernels::CheckBuf(token_table, compute_, 0);
  kernels::CheckBuf(position_table, compute_, context_tokens * width);
  const int64_t vocabulary = width > 0 ? token_table.num_elements / width : 0;
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::EmbedForward(y.as<T>(), tokens.as<const int32_t>(), token_table.as<const T>(),
                             position_table.as<const T>(), rows, context_tokens, width, vocabulary,
                             Compute()),
          "EmbedForward");
  });
}

void CudaDevice::EmbedBackward(kernels::Buf dtoken_table, kernels::Buf dposition_table,
                               kernels::Buf dy, kernels::Buf tokens, int64_t rows,
                               int64_t context_tokens, int64_t width, int64_t vocabulary) {
  kernels::CheckBuf(dtoken_table, kernels::DType::kF32, vocabulary * width);
  kernels::CheckBuf(dposition_table, kernels::DType::kF32, context_tokens * width);
  kernels::CheckBuf(dy, compute_, rows * width);
  kernels::CheckBuf(tokens, kernels::DType::kI32, rows);
  void* scratch = Scratch(EmbedBackwardWorkspaceBytes(rows, width));
  if (scratch == nullptr) return;
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::EmbedBackward(dtoken_table.as<float>(), dposition_table.as<float>(),
                              dy.as<const T>(), tokens.as<const int32_t>(), rows, context_tokens,
                              width, vocabulary, scratch, Compute()),
          "EmbedBackward");
  });
}

void CudaDevice::SoftmaxCrossEntropy(kernels::Buf losses, kernels::Buf correct, kernels::Buf logits,
                                     kernels::Buf targets, int64_t rows, int64_t classes,
                                     int64_t row_stride, double scale) {
  LODESTAR_CHECK(row_stride >= classes);
  kernels::CheckBuf(losses, kernels::DType::kF32, rows);
  kernels::CheckOptionalBuf(correct, kernels::DType::kI32, rows);
  kernels::CheckBuf(logits, compute_, rows * row_stride);
  kernels::CheckBuf(targets, kernels::DType::kI32, rows);
  WithComputeType(compute_, [&]<typename T>() {
    Check(cuda::SoftmaxCrossEntropy(losses.as<float>(), correct.as<int32_t>(), logits.as<T>(),
                                    targets.as<const int32_t>(), rows, classes, row_stride, scale,
                                    Compute()),
          "SoftmaxCrossEntropy");
  });
}

}  // namespace lodestar::cuda
