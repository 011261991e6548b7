// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gpt_blocks.h"

namespace lodestar::model {
namespace {

constexpr int64_t kMlpExpansion = 4;

LinearLayer MakeLinear(const ParameterArena& parameters, const std::string& name, int64_t in,
                       int64_t out, kernels::Activation activation) {
  const std::string weight = name + ".weight";
  return LinearLayer(GetGptTensor(parameters, weight), GetGptTensor(parameters, name + ".bias"), in,
                     out, activation,
                     parameters.layout().Find(weight) != nullptr ? kernels::WeightOrder::kInOut
                                                                 : kernels::WeightOrder::kOutIn);
}

// Applies dropout to the output of a branch, in place.
void DropOutput(kernels::Device* device, kernels::Buf branch, int64_t num_elements,
                const kernels::DropoutMask& mask) {
  if (mask.rate == 0.0) return;
  const kernels::Buf output = branch.Slice(0, num_elements);
  device->Dropout(output, output, mask);
}

// Computes the gradient to a branch's output before dropout, from `dy`, the gradient after dropout.
// Does not change `dy`, because `dy` is also the gradient of the residual stream.
kernels::Buf GradientBeforeDropout(kernels::Device* device, const GptScratch& scratch,
                                   kernels::Buf dy, int64_t num_elements,
                                   const kernels::DropoutMask& mask) {
  if (mask.rate == 0.0) return dy;
  device->Dropout(scratch.branch, dy.Slice(0, num_elements), mask);
  return scratch.branch;
}

}  // namespace

Parameter GetGptTensor(const ParameterArena& parameters, const std::string& name,
                       int64_t extra_elements) {
  const bool is_there = parameters.layout().Find(name) != nullptr;
  return parameters.Get(is_there ? name : params::EarlierGptTensor(name).name, extra_elements);
}

AttentionBranch::AttentionBranch(const ParameterArena& parameters, const std::string& prefix,
                                 const params::GptSpec& gpt)
    : qkv_(MakeLinear(parameters, prefix + "c_attn", gpt.width, 3 * int64_t{gpt.width},
                      kernels::Activation::kNone)),
      projection_(MakeLinear(parameters, prefix + "c_proj", gpt.width, gpt.width,
                             kernels::Activation::kNone)) {}

void AttentionBranch::Plan(const kernels::AttentionShape& max_shape, kernels::DType dtype,
                           ActivationArena* arena) {
  const int64_t max_rows = max_shape.batch * max_shape.tokens;
  qkv_.Plan(max_rows, dtype, arena);
  arena->Plan(&attention_, max_rows * max_shape.heads * max_shape.head_width, dtype);
  arena->Plan(&log_sum_exp_, max_rows * max_shape.heads, kernels::StatisticsDType(dtype));
}

void AttentionBranch::Forward(kernels::Device* device, const GptScratch& scratch, kernels::Buf x,
                              const kernels::AttentionShape& shape,
                              const kernels::DropoutMask& mask) const {
  const int64_t rows = shape.batch * shape.tokens;
  qkv_.Forward(device, qkv_.y(), x, rows);
  device->AttentionForward(attention_, log_sum_exp_, qkv_.y(), scratch.workspace, shape);
  projection_.Forward(device, scratch.branch, attention_, rows);
  DropOutput(device, scratch.branch, rows * projection_.out(), mask);
}

void AttentionBranch::Backward(kernels::Device* device, const GptScratch& scratch, kernels::Buf dy,
                               kernels::Buf x, const kernels::AttentionShape& shape,
                               const kernels::DropoutMask& mask,
                               kernels::Accumulate weights) const {
  const int64_t rows = shape.batch * shape.tokens;
  const kernels::Buf dprojection =
      GradientBeforeDropout(device, scratch, dy, rows * projection_.out(), mask);
  projection_.Backward(device, scratch.dattention, dprojection, attention_, rows, weights);
  device->AttentionBackward(scratch.dwide, scratch.dattention, attention_, log_sum_exp_, qkv_.y(),
                            scratch.workspace, shape);
  qkv_.Backward(device, scratch.branch, scratch.dwide, x, rows, weights);
}

MlpBranch::MlpBranch(const ParameterArena& parameters, const std::string& prefix,
                     const params::GptSpec& gpt)
    : fc_(MakeLinear(parameters, prefix + "c_fc", gpt.width, kMlpExpansion * gpt.width,
                     kernels::Activation::kGeluTanh)),
      projection_(MakeLinear(parameters, prefix + "c_proj", kMlpExpansion * gpt.width, gpt.width,
                             kernels::Activation::kNone)) {}

void MlpBranch::Plan(int64_t max_rows, kernels::DType dtype, ActivationArena* arena) {
  fc_.PlanPreActivation(max_rows, dtype, arena);
}

void MlpBranch::PlanHidden(int64_t max_rows, kernels::DType dtype, ActivationArena* arena) {
  fc_.PlanOutput(max_rows, dtype, arena);
}

void MlpBranch::Forward(kernels::Device* device, const GptScratch& scratch, kernels::Buf x,
                        int64_t rows, const kernels::DropoutMask& mask) const {
  ForwardHidden(device, x, rows);
  projection_.Forward(device, scratch.branch, fc_.y(), rows);
  DropOutput(device, scratch.branch, rows * projection_.out(), mask);
}

void MlpBranch::ForwardHidden(kernels::Device* device, kernels::Buf x, int64_t rows) const {
  fc_.Forward(device, fc_.y(), x, rows);
}

void MlpBranch::RecomputeHidden(kernels::Device* device, int64_t rows) const {
  fc_.Reactivate(device, rows);
}

void MlpBranch::Backward(kernels::Device* device, const GptScratch& scratch, kernels::Buf dy,
                         kernels::Buf x, int64_t rows, const kernels::DropoutMask& mask,
                         kernels::Accumulate weights) const {
  const kernels::Buf dprojection =
      GradientBeforeDropout(device, scratch, dy, rows * projection_.out(), mask);
  projection_.BackwardUpTo(fc_, device, scratch.dwide, dprojection, rows, weights);
  fc_.BackwardFrom(device, scratch.branch, scratch.dwide, x, rows, weights);
}

}  // namespace lodestar::model
