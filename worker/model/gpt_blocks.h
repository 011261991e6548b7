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

namespace lodestar {

// A tensor of BuildLayout(): under its name, or under the earlier one in the layout of a job that
// goes on from a journal of an earlier release.
Parameter GetGptTensor(const ParameterArena& parameters, const std::string& name,
                       int64_t extra_elements = 0);

// Memory that all layers share, each for the time of one call.
struct GptScratch {
  Buf branch;      // [rows, width] output of a branch in forward; gradients to its output, where
                   // dropout changes it, and to its input in backward
  Buf dattention;  // [rows, width]
  Buf dwide;       // [rows, 4 * width] gradient to qkv or to the hidden values of the MLP
  Buf workspace;   // of the attention
};

// dropout(projection(attention(qkv(x)))); `mask` is of the outer dropout, the inner one is in
// `shape`.
class AttentionBranch {
 public:
  // `prefix` of the tensors' names: "h.3.attn.".
  AttentionBranch(const ParameterArena& parameters, const std::string& prefix, const GptSpec& gpt);

  void Plan(const AttentionShape& max_shape, DType dtype, ActivationArena* arena);
  // Into scratch.branch.
  void Forward(Device* device, const GptScratch& scratch, Buf x, const AttentionShape& shape,
               const DropoutMask& mask) const;
  // From dy (the gradient to the branch's output, kept) to scratch.branch (to x).
  void Backward(Device* device, const GptScratch& scratch, Buf dy, Buf x,
                const AttentionShape& shape, const DropoutMask& mask, Accumulate weights) const;

 private:
  LinearLayer qkv_;
  LinearLayer projection_;
  Buf attention_;
  Buf log_sum_exp_;
};

// dropout(projection(gelu(fc(x))))
class MlpBranch {
 public:
  // `prefix` of the tensors' names: "h.3.mlp.".
  MlpBranch(const ParameterArena& parameters, const std::string& prefix, const GptSpec& gpt);

  // All but the output of the GELU.
  void Plan(int64_t max_rows, DType dtype, ActivationArena* arena);
  void PlanHidden(int64_t max_rows, DType dtype, ActivationArena* arena);
  // Into scratch.branch.
  void Forward(Device* device, const GptScratch& scratch, Buf x, int64_t rows,
               const DropoutMask& mask) const;
  // As far as backward needs it: the GELU and the values before it.
  void ForwardHidden(Device* device, Buf x, int64_t rows) const;
  // The output of the GELU once more.
  void RecomputeHidden(Device* device, int64_t rows) const;
  // From dy (the gradient to the branch's output, kept) to scratch.branch (to x).
  void Backward(Device* device, const GptScratch& scratch, Buf dy, Buf x, int64_t rows,
                const DropoutMask& mask, Accumulate weights) const;

 private:
  LinearLayer fc_;
  LinearLayer projection_;
};

}  // namespace lodestar
