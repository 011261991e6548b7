#include "worker/model/gpt_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

const GptSpec& SpecOf(const ModelConfig& config) {
  return std::get<GptSpec>(config.spec.architecture);
}

SampleShape ShapeOf(const GptSpec& gpt) {
  return {.inputs = gpt.context,
          .predictions = gpt.context,
          .classes = gpt.vocabulary,
          .token_limit = gpt.vocabulary};
}

NormLayer MakeNorm(const ParameterArena& parameters, const std::string& name, int64_t width) {
  return NormLayer(parameters.Get(name + ".weight"), parameters.Get(name + ".bias"), width);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GptModel>> GptModel::Create(const ModelConfig& config,
                                                           Device* device) {
  ASSIGN_OR_RETURN(Layout layout, BuildLayout(config.spec));
  ASSIGN_OR_RETURN(auto parameters,
                   ParameterArena::Create(config.spec.name, std::move(layout), device));
  auto model = std::unique_ptr<GptModel>(new GptModel(config, std::move(parameters), device));
  RETURN_IF_ERROR(model->AllocateActivations());
  return model;
}

GptModel::GptModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters,
                   Device* device)
    : BatchedModel(config, ShapeOf(SpecOf(config)), std::move(parameters), device),
      gpt_(SpecOf(config)),
      token_table_(parameter_arena().Get("wte")),
      position_table_(parameter_arena().Get("wpe")),
      last_norm_(MakeNorm(parameter_arena(), "ln_f", gpt_.width)) {
  for (int i = 0; i < gpt_.num_layers; ++i) {
    const std::string prefix = absl::StrCat("h.", i, ".");
    layers_.push_back({MakeNorm(parameter_arena(), prefix + "ln_1", gpt_.width),
                       AttentionBranch(parameter_arena(), prefix + "attn.", gpt_),
                       MakeNorm(parameter_arena(), prefix + "ln_2", gpt_.width),
                       MlpBranch(parameter_arena(), prefix + "mlp.", gpt_)});
  }
  PlanBuffers();
}

void GptModel::PlanBuffers() {
  const AttentionShape max_shape = Shape(max_batch(), gpt_.context);
  const int64_t max_rows = max_shape.batch * max_shape.tokens;
  ActivationArena* const arena = activation_arena();
  for (Layer& layer : layers_) {
    layer.norm1.Plan(max_rows, dtype(), arena);
    layer.attention.Plan(max_shape, dtype(), arena);
    layer.norm2.Plan(max_rows, dtype(), arena);
    layer.mlp.Plan(max_rows, dtype(), arena);
  }
  last_norm_.Plan(max_rows, dtype(), arena);
  for (Buf* buf : {&dresidual_, &scratch_.branch, &scratch_.dattention}) {
    arena->Plan(buf, max_rows * gpt_.width, dtype());
  }
  arena->Plan(&scratch_.dwide, max_rows * 4 * gpt_.width, dtype());
  arena->Plan(&scratch_.workspace, device()->AttentionWorkspaceElements(max_shape), dtype());
  if (dtype() != DType::kF32) arena->Plan(&prompt_logits_, gpt_.vocabulary, DType::kF32);
}

AttentionShape GptModel::Shape(int64_t samples, int64_t tokens) const {
  return {samples, tokens, gpt_.num_heads, gpt_.width / gpt_.num_heads};
}

absl::Status GptModel::Forward(int64_t samples, WeightsGate* gate) {
  RETURN_IF_ERROR(ForwardLayers(Shape(samples, gpt_.context), gate));
  ForwardHead(last_norm_.y(), samples * gpt_.context);
  return absl::OkStatus();
}

absl::Status GptModel::ForwardLayers(const AttentionShape& shape, WeightsGate* gate) {
  const int64_t rows = shape.batch * shape.tokens;
  RETURN_IF_ERROR(WaitForBlock(gate, 0));
  // The stream is residual + branch; each norm does the addition first.
  Buf residual = layers_.front().norm1.sum();
  Buf branch;
  device()->EmbedForward(residual, inputs(), token_table_.value, position_table_.value, rows,
                         shape.tokens, gpt_.width);
  for (int i = 0; i < gpt_.num_layers; ++i) {
    const Layer& layer = layers_[i];
    RETURN_IF_ERROR(WaitForBlock(gate, i + 1));
    layer.norm1.Forward(device(), residual, branch, rows);
    layer.attention.Forward(device(), scratch_, layer.norm1.y(), shape);
    branch = scratch_.branch;
    layer.norm2.Forward(device(), layer.norm1.sum(), branch, rows);
    layer.mlp.Forward(device(), scratch_, layer.norm2.y(), rows);
    residual = layer.norm2.sum();
  }
  RETURN_IF_ERROR(WaitForBlock(gate, gpt_.num_layers + 1));
  last_norm_.Forward(device(), residual, branch, rows);
  return absl::OkStatus();
}

void GptModel::ForwardHead(Buf x, int64_t rows) {
  device()->LinearForward(logits(), /*pre_activation=*/{}, x, token_table_.value, /*bias=*/{}, rows,
                          gpt_.width, gpt_.vocabulary, Activation::kNone);
}

absl::Status GptModel::Backward(int64_t samples, Accumulate weights, GradientSink* sink) {
  const AttentionShape shape = Shape(samples, gpt_.context);
  const int64_t rows = shape.batch * shape.tokens;
  BackwardHead(rows, weights);
  last_norm_.Backward(device(), dresidual_, scratch_.branch, rows, Accumulate::kSet, weights);
  RETURN_IF_ERROR(ReportBlock(sink, gpt_.num_layers + 1));
  for (int i = gpt_.num_layers - 1; i >= 0; --i) {
    BackwardLayer(layers_[i], shape, weights);
    RETURN_IF_ERROR(ReportBlock(sink, i + 1));
  }
  BackwardTables(rows, weights);
  return ReportBlock(sink, 0);
}

void GptModel::BackwardHead(int64_t rows, Accumulate weights) {
  device()->LinearBackward(scratch_.branch, token_table_.gradient, /*db=*/{}, logits(),
                           /*pre_activation=*/{}, last_norm_.y(), token_table_.value, rows,
                           gpt_.width, gpt_.vocabulary, Activation::kNone, weights);
}

void GptModel::BackwardLayer(const Layer& layer, const AttentionShape& shape, Accumulate weights) {
  const int64_t rows = shape.batch * shape.tokens;
  layer.mlp.Backward(device(), scratch_, dresidual_, layer.norm2.y(), rows, weights);
  layer.norm2.Backward(device(), dresidual_, scratch_.branch, rows, Accumulate::kAdd, weights);
  layer.attention.Backward(device(), scratch_, dresidual_, layer.norm1.y(), shape, weights);
  layer.norm1.Backward(device(), dresidual_, scratch_.branch, rows, Accumulate::kAdd, weights);
}

void GptModel::BackwardTables(int64_t rows, Accumulate weights) {
  // The token table already holds the gradient of the head.
  if (weights == Accumulate::kSet) device()->Fill(position_table_.gradient, 0.0);
  device()->EmbedBackward(token_table_.gradient, position_table_.gradient, dresidual_, inputs(),
                          rows, gpt_.context, gpt_.width, gpt_.vocabulary);
}

absl::Status GptModel::NextTokenLogits(absl::Span<const int32_t> tokens,
                                       std::vector<float>* logits) {
  const int64_t count = std::min<int64_t>(tokens.size(), gpt_.context);
  RETURN_IF_ERROR(UploadPrompt(tokens.last(count)));
  RETURN_IF_ERROR(ForwardLayers(Shape(/*samples=*/1, count), /*gate=*/nullptr));
  ForwardHead(last_norm_.y().Slice((count - 1) * gpt_.width, gpt_.width), /*rows=*/1);
  Buf result = this->logits().Slice(0, gpt_.vocabulary);
  if (prompt_logits_) {
    device()->Cast(prompt_logits_, result, 1.0, StreamKind::kCompute);
    result = prompt_logits_;
  }
  logits->resize(gpt_.vocabulary);
  device()->Copy(logits->data(), result.data, logits->size() * sizeof(float), StreamKind::kCompute);
  return device()->Synchronize(device()->Record(StreamKind::kCompute));
}

absl::Status GptModel::UploadPrompt(absl::Span<const int32_t> tokens) {
  if (tokens.empty()) {
    return absl::InvalidArgumentError("no token to continue from; give a prompt");
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= gpt_.vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the prompt has token ", token, ", the model knows 0 to ", gpt_.vocabulary - 1));
    }
  }
  device()->Copy(inputs().data, tokens.data(), tokens.size() * sizeof(int32_t),
                 StreamKind::kCompute);
  return absl::OkStatus();
}

}  // namespace lodestar
