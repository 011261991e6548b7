#include "worker/model/gpt_blocks.h"

namespace lodestar {
namespace {

constexpr int64_t kMlpExpansion = 4;

LinearLayer MakeLinear(const ParameterArena& parameters, const std::string& name, int64_t in,
                       int64_t out, Activation activation) {
  return LinearLayer(parameters.Get(name + ".weight"), parameters.Get(name + ".bias"), in, out,
                     activation);
}

}  // namespace

AttentionBranch::AttentionBranch(const ParameterArena& parameters, const std::string& prefix,
                                 const GptSpec& gpt)
    : qkv_(MakeLinear(parameters, prefix + "qkv", gpt.width, 3 * int64_t{gpt.width},
                      Activation::kNone)),
      projection_(
          MakeLinear(parameters, prefix + "proj", gpt.width, gpt.width, Activation::kNone)) {}

void AttentionBranch::Plan(const AttentionShape& max_shape, DType dtype, ActivationArena* arena) {
  const int64_t max_rows = max_shape.batch * max_shape.tokens;
  qkv_.Plan(max_rows, dtype, arena);
  arena->Plan(&attention_, max_rows * max_shape.heads * max_shape.head_width, dtype);
  arena->Plan(&log_sum_exp_, max_rows * max_shape.heads, StatisticsDType(dtype));
}

void AttentionBranch::Forward(Device* device, const GptScratch& scratch, Buf x,
                              const AttentionShape& shape) const {
  const int64_t rows = shape.batch * shape.tokens;
  qkv_.Forward(device, qkv_.y(), x, rows);
  device->AttentionForward(attention_, log_sum_exp_, qkv_.y(), scratch.workspace, shape);
  projection_.Forward(device, scratch.branch, attention_, rows);
}

void AttentionBranch::Backward(Device* device, const GptScratch& scratch, Buf dy, Buf x,
                               const AttentionShape& shape, Accumulate weights) const {
  const int64_t rows = shape.batch * shape.tokens;
  projection_.Backward(device, scratch.dattention, dy, attention_, rows, weights);
  device->AttentionBackward(scratch.dwide, scratch.dattention, attention_, log_sum_exp_, qkv_.y(),
                            scratch.workspace, shape);
  qkv_.Backward(device, scratch.branch, scratch.dwide, x, rows, weights);
}

MlpBranch::MlpBranch(const ParameterArena& parameters, const std::string& prefix,
                     const GptSpec& gpt)
    : fc_(MakeLinear(parameters, prefix + "fc", gpt.width, kMlpExpansion * gpt.width,
                     Activation::kGeluTanh)),
      projection_(MakeLinear(parameters, prefix + "proj", kMlpExpansion * gpt.width, gpt.width,
                             Activation::kNone)) {}

void MlpBranch::Plan(int64_t max_rows, DType dtype, ActivationArena* arena) {
  fc_.Plan(max_rows, dtype, arena);
}

void MlpBranch::Forward(Device* device, const GptScratch& scratch, Buf x, int64_t rows) const {
  fc_.Forward(device, fc_.y(), x, rows);
  projection_.Forward(device, scratch.branch, fc_.y(), rows);
}

void MlpBranch::Backward(Device* device, const GptScratch& scratch, Buf dy, Buf x, int64_t rows,
                         Accumulate weights) const {
  projection_.Backward(device, scratch.dwide, dy, fc_.y(), rows, weights);
  fc_.Backward(device, scratch.branch, scratch.dwide, x, rows, weights);
}

}  // namespace lodestar
