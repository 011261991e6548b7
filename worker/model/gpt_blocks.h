// The two kinds of branch of a transformer layer, attention and MLP, with their parameters and
// saved activations.
#pragma once

#include <cstdint>
#include <string>

#include "common/params/model_spec.h"
#include "kernels/device.h"
#include "worker/model/activation_arena.h"
#include "worker/model/linear_layer.h"
#include "worker/model/parameter_arena.h"

namespace lodestar::model {

// A tensor of BuildLayout(): under its name, or under the earlier one in the layout of a job that
// goes on from a journal of an earlier release.
Parameter GetGptTensor(const ParameterArena& parameters, const std::string& name,
                       int64_t extra_elements = 0);

// Memory that all layers share, each for the time of one call.
struct GptScratch {
  kernels::Buf branch;      // [rows, width] output of a branch in forward; gradients to its output,
                            // where dropout changes it, and to its input in backward
  kernels::Buf dattention;  // [rows, width]
  kernels::Buf dwide;       // [rows, 4 * width] gradient to qkv or to the hidden values of the MLP
  kernels::Buf workspace;   // of the attention
};

// dropout(projection(attention(qkv(x)))); `mask` is of the outer dropout, the inner one is in
// `shape`.
class AttentionBranch {
 public:
  // `prefix` of the tensors' names: "h.3.attn.".
  AttentionBranch(const ParameterArena& parameters, const std::string& prefix, const GptSpec& gpt);

  void Plan(const kernels::AttentionShape& max_shape, kernels::DType dtype, ActivationArena* arena);
  // Into scratch.branch.
  void Forward(kernels::Device* device, const GptScratch& scratch, kernels::Buf x,
               const kernels::AttentionShape& shape, const kernels::DropoutMask& mask) const;
  // From dy (the gradient to the branch's output, kept) to scratch.branch (to x).
  void Backward(kernels::Device* device, const GptScratch& scratch, kernels::Buf dy, kernels::Buf x,
                const kernels::AttentionShape& shape, const kernels::DropoutMask& mask,
                kernels::Accumulate weights) const;

 private:
  LinearLayer qkv_;
  LinearLayer projection_;
  kernels::Buf attention_;
  kernels::Buf log_sum_exp_;
};

// dropout(projection(gelu(fc(x))))
class MlpBranch {
 public:
  // `prefix` of the tensors' names: "h.3.mlp.".
  MlpBranch(const ParameterArena& parameters, const std::string& prefix, const GptSpec& gpt);

  // All but the output of the GELU.
  void Plan(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  void PlanHidden(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  // Into scratch.branch.
  void Forward(kernels::Device* device, const GptScratch& scratch, kernels::Buf x, int64_t rows,
               const kernels::DropoutMask& mask) const;
  // As far as backward needs it: the GELU and the values before it.
  void ForwardHidden(kernels::Device* device, kernels::Buf x, int64_t rows) const;
  // The output of the GELU once more.
  void RecomputeHidden(kernels::Device* device, int64_t rows) const;
  // From dy (the gradient to the branch's output, kept) to scratch.branch (to x).
  void Backward(kernels::Device* device, const GptScratch& scratch, kernels::Buf dy, kernels::Buf x,
                int64_t rows, const kernels::DropoutMask& mask, kernels::Accumulate weights) const;

 private:
  LinearLayer fc_;
  LinearLayer projection_;
};

}  // namespace lodestar::model
