// SPDX-License-Identifier: Apache-2.0

// The two branches of a transformer layer, attention and MLP, with their parameters and the
// activations that are saved for backward.
#pragma once

#include <cstdint>
#include <string>

#include "common/params/model_spec.h"
#include "kernels/device.h"
#include "worker/model/activation_arena.h"
#include "worker/model/linear_layer.h"
#include "worker/model/parameter_arena.h"

namespace lodestar::model {

// Returns the tensor that BuildLayout() calls `name`. If the layout comes from the journal of an
// earlier release, the tensor has an earlier name there.
Parameter GetGptTensor(const ParameterArena& parameters, const std::string& name,
                       int64_t extra_elements = 0);

// Memory that all layers share. A layer uses it only during one call.
struct GptScratch {
  // [rows, width]. Holds, one after the other:
  // - in forward: the output of a branch;
  // - in backward with dropout: the gradient to the output before dropout;
  // - in backward: the gradient to the input of the branch.
  kernels::Buf branch;
  kernels::Buf dattention;  // [rows, width]
  // [rows, 4 * width]. The gradient to qkv, or to the hidden values of the MLP.
  kernels::Buf dwide;
  kernels::Buf workspace;  // Workspace of the attention.
};

// Computes dropout(projection(attention(qkv(x)))). `mask` is for this outer dropout. shape.dropout
// is for the dropout inside the attention.
class AttentionBranch {
 public:
  // `prefix` is the beginning of the tensors' names, such as "h.3.attn.".
  AttentionBranch(const ParameterArena& parameters, const std::string& prefix,
                  const params::GptSpec& gpt);

  void Plan(const kernels::AttentionShape& max_shape, kernels::DType dtype, ActivationArena* arena);
  // Writes the output to scratch.branch.
  void Forward(kernels::Device* device, const GptScratch& scratch, kernels::Buf x,
               const kernels::AttentionShape& shape, const kernels::DropoutMask& mask) const;
  // Sets scratch.branch to the gradient to `x`. `dy` is the gradient to the branch's output, and is
  // not changed.
  void Backward(kernels::Device* device, const GptScratch& scratch, kernels::Buf dy, kernels::Buf x,
                const kernels::AttentionShape& shape, const kernels::DropoutMask& mask,
                kernels::Accumulate weights) const;

 private:
  LinearLayer qkv_;
  LinearLayer projection_;
  kernels::Buf attention_;
  kernels::Buf log_sum_exp_;
};

// Computes dropout(projection(gelu(fc(x)))).
class MlpBranch {
 public:
  // `prefix` is the beginning of the tensors' names, such as "h.3.mlp.".
  MlpBranch(const ParameterArena& parameters, const std::string& prefix,
            const params::GptSpec& gpt);

  // Plan() reserves all saved activations except the output of the GELU. PlanHidden() reserves that
  // output.
  void Plan(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  void PlanHidden(int64_t max_rows, kernels::DType dtype, ActivationArena* arena);
  // Writes the output to scratch.branch.
  void Forward(kernels::Device* device, const GptScratch& scratch, kernels::Buf x, int64_t rows,
               const kernels::DropoutMask& mask) const;
  // Computes only what backward needs: the input and the output of the GELU.
  void ForwardHidden(kernels::Device* device, kernels::Buf x, int64_t rows) const;
  // Computes the output of the GELU again from its input.
  void RecomputeHidden(kernels::Device* device, int64_t rows) const;
  // Sets scratch.branch to the gradient to `x`. `dy` is the gradient to the branch's output, and is
  // not changed.
  void Backward(kernels::Device* device, const GptScratch& scratch, kernels::Buf dy, kernels::Buf x,
                int64_t rows, const kernels::DropoutMask& mask, kernels::Accumulate weights) const;

 private:
  LinearLayer fc_;
  LinearLayer projection_;
};

}  // namespace lodestar::model
