// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gpt_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/params/layout.h"
#include "common/runtime/status_macros.h"

namespace lodestar::model {
namespace {

const params::GptSpec& SpecOf(const ModelConfig& config) {
  return std::get<params::GptSpec>(config.spec.architecture);
}

// On a GPU, rows of logits start at multiples of this number of elements, because products of
// matrices of odd width are slow. 50257 tokens become 50304 columns.
constexpr int64_t kLogitsAlignment = 128;

// Selects the random numbers of dropout, so that they differ from those of other code with the same
// seed. The index of the dropout in the model is added to this constant.
constexpr uint64_t kDropoutStream = 0x64726f706f757400;

int64_t HeadRows(const params::GptSpec& gpt, const kernels::Device& device) {
  if (device.capabilities().memory_is_host) return gpt.vocabulary;
  return (gpt.vocabulary + kLogitsAlignment - 1) / kLogitsAlignment * kLogitsAlignment;
}

SampleShape ShapeOf(const params::GptSpec& gpt, const kernels::Device& device) {
  return {.inputs = gpt.context,
          .predictions = gpt.context,
          .classes = gpt.vocabulary,
          .token_limit = gpt.vocabulary,
          .logits_stride = HeadRows(gpt, device),
          .has_dropout = gpt.dropout > 0.0};
}

NormLayer MakeNorm(const ParameterArena& parameters, const std::string& name, int64_t width) {
  return NormLayer(parameters.Get(name + ".weight"), parameters.Get(name + ".bias"), width);
}

}  // namespace

int64_t GptModel::PaddingElements(const ModelConfig& config, kernels::Device* device) {
  const params::GptSpec& gpt = SpecOf(config);
  return (HeadRows(gpt, *device) - gpt.vocabulary) * gpt.width;
}

GptModel::GptModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters,
                   kernels::Device* device)
    : BatchedModel(config, ShapeOf(SpecOf(config), *device), std::move(parameters), device),
      gpt_(SpecOf(config)),
      recompute_(config.recompute),
      seed_(config.seed),
      head_rows_(HeadRows(gpt_, *device)),
      token_table_(GetGptTensor(parameter_arena(), "wte.weight", PaddingElements(config, device))),
      position_table_(GetGptTensor(parameter_arena(), "wpe.weight")),
      token_rows_(layout().block(0).begin, gpt_.vocabulary, gpt_.width),
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
  const Sequences most{{.samples = max_batch()}, gpt_.context};
  const int64_t max_rows = most.rows();
  ActivationArena* const arena = activation_arena();
  PlanLayers(max_rows);
  last_norm_.Plan(max_rows, dtype(), arena);
  for (kernels::Buf* buf : {&dresidual_, &scratch_.branch, &scratch_.dattention}) {
    arena->Plan(buf, max_rows * gpt_.width, dtype());
  }
  arena->Plan(&scratch_.dwide, max_rows * 4 * gpt_.width, dtype());
  arena->Plan(&later_table_gradient_, head_rows_ * gpt_.width, token_table_.gradient.dtype);
  arena->Plan(&scratch_.workspace,
              device()->AttentionWorkspaceElements(Attention(most, /*layer=*/0)), dtype());
  if (dtype() != kernels::DType::kF32)
    arena->Plan(&prompt_logits_, gpt_.vocabulary, kernels::DType::kF32);
}

// Gives each layer memory of its own only for the activations that backward reads and that are not
// recomputed. Layers share the memory of all other activations.
void GptModel::PlanLayers(int64_t max_rows) {
  const kernels::AttentionShape max_shape =
      Attention({{.samples = max_batch()}, gpt_.context}, /*layer=*/0);
  ActivationArena* const arena = activation_arena();
  for (Layer& layer : layers_) layer.norm1.PlanSum(max_rows, dtype(), arena);
  const int64_t shared_layer = arena->place();
  for (Layer& layer : layers_) {
    if (recompute_ == Recompute::kBlock) arena->Rewind(shared_layer);
    layer.norm1.PlanOutput(max_rows, dtype(), arena);
    layer.attention.Plan(max_shape, dtype(), arena);
    layer.norm2.Plan(max_rows, dtype(), arena);
    layer.mlp.Plan(max_rows, dtype(), arena);
  }
  const int64_t shared_hidden = arena->place();
  for (Layer& layer : layers_) {
    if (recompute_ != Recompute::kNone) arena->Rewind(shared_hidden);
    layer.mlp.PlanHidden(max_rows, dtype(), arena);
  }
}

kernels::DropoutMask GptModel::Mask(const Pass& pass, int site, int64_t elements_per_sample) const {
  if (!pass.is_training) return {};
  return {.rate = gpt_.dropout,
          .key = seed_,
          .stream = kDropoutStream + site,
          .first_element = pass.first_position * elements_per_sample};
}

kernels::DropoutMask GptModel::MaskOfEmbedding(const Sequences& sequences) const {
  return Mask(sequences.pass, 0, sequences.tokens * gpt_.width);
}

kernels::DropoutMask GptModel::MaskOfAttention(const Sequences& sequences, int layer) const {
  return Mask(sequences.pass, 3 * layer + 2, sequences.tokens * gpt_.width);
}

kernels::DropoutMask GptModel::MaskOfMlp(const Sequences& sequences, int layer) const {
  return Mask(sequences.pass, 3 * layer + 3, sequences.tokens * gpt_.width);
}

kernels::AttentionShape GptModel::Attention(const Sequences& sequences, int layer) const {
  const int64_t tokens = sequences.tokens;
  return {.batch = sequences.pass.samples,
          .tokens = tokens,
          .heads = gpt_.num_heads,
          .head_width = gpt_.width / gpt_.num_heads,
          .dropout = Mask(sequences.pass, 3 * layer + 1, gpt_.num_heads * tokens * tokens)};
}

absl::Status GptModel::Forward(const Pass& pass, WeightsGate* gate) {
  const Sequences sequences{pass, gpt_.context};
  RETURN_IF_ERROR(ForwardLayers(sequences, gate));
  RETURN_IF_ERROR(WaitForHead(gate));
  ForwardHead(last_norm_.y(), sequences.rows());
  return absl::OkStatus();
}

absl::Status GptModel::WaitForLookups(WeightsGate* gate) {
  std::vector<params::ElementRange> read = token_rows_.used();
  const params::ElementRange tables = layout().block(0);
  read.push_back({tables.begin + int64_t{gpt_.vocabulary} * gpt_.width, tables.end});
  return WaitForParts(gate, 0, read);
}

absl::Status GptModel::WaitForHead(WeightsGate* gate) {
  const std::vector<params::ElementRange> rest = token_rows_.unused();
  return rest.empty() ? absl::OkStatus() : WaitForRest(gate, 0, rest);
}

absl::Status GptModel::ForwardLayers(const Sequences& sequences, WeightsGate* gate) {
  const int64_t rows = sequences.rows();
  RETURN_IF_ERROR(WaitForLookups(gate));
  kernels::Buf residual = layers_.front().norm1.sum();
  kernels::Buf branch;
  device()->EmbedForward(residual, inputs(), token_table_.value, position_table_.value, rows,
                         sequences.tokens, gpt_.width);
  if (const kernels::DropoutMask mask = MaskOfEmbedding(sequences); mask.rate > 0.0) {
    const kernels::Buf embedded = residual.Slice(0, rows * gpt_.width);
    device()->Dropout(embedded, embedded, mask);
  }
  for (int i = 0; i < gpt_.num_layers; ++i) {
    RETURN_IF_ERROR(WaitForBlock(gate, i + 1));
    ForwardLayer(i, residual, branch, sequences);
    residual = layers_[i].norm2.sum();
    branch = scratch_.branch;
  }
  RETURN_IF_ERROR(WaitForBlock(gate, gpt_.num_layers + 1));
  last_norm_.Forward(device(), residual, branch, rows);
  return absl::OkStatus();
}

void GptModel::ForwardLayer(int layer, kernels::Buf residual, kernels::Buf branch,
                            const Sequences& sequences) {
  const Layer& at = layers_[layer];
  const int64_t rows = sequences.rows();
  // The residual stream is a sum. Each norm adds the output of the previous branch to the sum
  // before it normalizes.
  at.norm1.Forward(device(), residual, branch, rows);
  at.attention.Forward(device(), scratch_, at.norm1.y(), Attention(sequences, layer),
                       MaskOfAttention(sequences, layer));
  at.norm2.Forward(device(), at.norm1.sum(), scratch_.branch, rows);
  at.mlp.Forward(device(), scratch_, at.norm2.y(), rows, MaskOfMlp(sequences, layer));
}

void GptModel::ForwardHead(kernels::Buf x, int64_t rows) {
  device()->LinearForward(logits(), /*pre_activation=*/{}, x, token_table_.value, /*bias=*/{}, rows,
                          gpt_.width, head_rows_, kernels::Activation::kNone,
                          kernels::WeightOrder::kOutIn);
}

absl::Status GptModel::Backward(const Pass& pass, kernels::Accumulate weights, GradientSink* sink) {
  const Sequences sequences{pass, gpt_.context};
  const int64_t rows = sequences.rows();
  BackwardHead(rows, weights);
  // Without a sink, the whole gradient of the table is added at the end. The queued work then does
  // not depend on the tokens, so it can be recorded as a graph.
  if (sink != nullptr) RETURN_IF_ERROR(ReportRest(weights, sink));
  last_norm_.Backward(device(), dresidual_, scratch_.branch, rows, kernels::Accumulate::kSet,
                      weights);
  RETURN_IF_ERROR(ReportBlock(sink, gpt_.num_layers + 1));
  for (int i = gpt_.num_layers - 1; i >= 0; --i) {
    RecomputeLayer(i, sequences);
    BackwardLayer(i, sequences, weights);
    RETURN_IF_ERROR(ReportBlock(sink, i + 1));
  }
  BackwardTables(sequences, weights);
  if (weights == kernels::Accumulate::kAdd) {
    AddToTableGradient(sink != nullptr ? token_rows_.used() : token_rows_.all());
  }
  return ReportBlock(sink, 0);
}

kernels::Buf GptModel::TableGradient(kernels::Accumulate weights) const {
  return weights == kernels::Accumulate::kSet ? token_table_.gradient : later_table_gradient_;
}

void GptModel::AddToTableGradient(absl::Span<const params::ElementRange> parts) {
  for (const params::ElementRange& part : parts) {
    const int64_t begin = part.begin - layout().block(0).begin;
    device()->AddScaled(token_table_.gradient.Slice(begin, part.size()),
                        later_table_gradient_.Slice(begin, part.size()), 1.0);
  }
}

absl::Status GptModel::ReportRest(kernels::Accumulate weights, GradientSink* sink) {
  const std::vector<params::ElementRange> rest = token_rows_.unused();
  if (rest.empty()) return absl::OkStatus();
  if (weights == kernels::Accumulate::kAdd) AddToTableGradient(rest);
  return ReportParts(sink, 0, rest);
}

// Must be called before the other parts of backward. If head_rows_ is larger than the vocabulary,
// this call also writes zeros behind the table's gradient. The gradients of other tensors are
// written there later.
void GptModel::BackwardHead(int64_t rows, kernels::Accumulate weights) {
  device()->LinearBackward(scratch_.branch, TableGradient(weights), /*db=*/{}, logits(),
                           /*pre_activation=*/{}, last_norm_.y(), token_table_.value, rows,
                           gpt_.width, head_rows_, kernels::Activation::kNone,
                           kernels::WeightOrder::kOutIn, kernels::Accumulate::kSet);
}

void GptModel::RecomputeLayer(int layer, const Sequences& sequences) {
  // The last layer needs no recomputation, because its activations have not been overwritten yet.
  if (recompute_ == Recompute::kNone || layer + 1 == gpt_.num_layers) return;
  const Layer& at = layers_[layer];
  const int64_t rows = sequences.rows();
  if (recompute_ == Recompute::kGelu) {
    at.mlp.RecomputeHidden(device(), rows);
    return;
  }
  at.norm1.Recompute(device(), rows);
  at.attention.Forward(device(), scratch_, at.norm1.y(), Attention(sequences, layer),
                       MaskOfAttention(sequences, layer));
  at.norm2.Forward(device(), at.norm1.sum(), scratch_.branch, rows);
  at.mlp.ForwardHidden(device(), at.norm2.y(), rows);
}

void GptModel::BackwardLayer(int layer, const Sequences& sequences, kernels::Accumulate weights) {
  const Layer& at = layers_[layer];
  const int64_t rows = sequences.rows();
  at.mlp.Backward(device(), scratch_, dresidual_, at.norm2.y(), rows, MaskOfMlp(sequences, layer),
                  weights);
  at.norm2.Backward(device(), dresidual_, scratch_.branch, rows, kernels::Accumulate::kAdd,
                    weights);
  at.attention.Backward(device(), scratch_, dresidual_, at.norm1.y(), Attention(sequences, layer),
                        MaskOfAttention(sequences, layer), weights);
  at.norm1.Backward(device(), dresidual_, scratch_.branch, rows, kernels::Accumulate::kAdd,
                    weights);
}

void GptModel::BackwardTables(const Sequences& sequences, kernels::Accumulate weights) {
  const int64_t rows = sequences.rows();
  if (const kernels::DropoutMask mask = MaskOfEmbedding(sequences); mask.rate > 0.0) {
    const kernels::Buf gradient = dresidual_.Slice(0, rows * gpt_.width);
    device()->Dropout(gradient, gradient, mask);
  }
  // BackwardHead() has already set the gradient of the token table. So only the gradient of the
  // position table must be cleared.
  if (weights == kernels::Accumulate::kSet) device()->Fill(position_table_.gradient, 0.0);
  device()->EmbedBackward(TableGradient(weights), position_table_.gradient, dresidual_, inputs(),
                          rows, gpt_.context, gpt_.width, gpt_.vocabulary);
}

absl::Status GptModel::NextTokenLogits(absl::Span<const int32_t> tokens,
                                       std::vector<float>* logits) {
  const int64_t count = std::min<int64_t>(tokens.size(), gpt_.context);
  RETURN_IF_ERROR(UploadPrompt(tokens.last(count)));
  RETURN_IF_ERROR(ForwardLayers({{.samples = 1}, count}, /*gate=*/nullptr));
  ForwardHead(last_norm_.y().Slice((count - 1) * gpt_.width, gpt_.width), /*rows=*/1);
  kernels::Buf result = this->logits().Slice(0, gpt_.vocabulary);
  if (prompt_logits_) {
    device()->Cast(prompt_logits_, result, 1.0, kernels::StreamKind::kCompute);
    result = prompt_logits_;
  }
  logits->resize(gpt_.vocabulary);
  device()->Copy(logits->data(), result.data, logits->size() * sizeof(float),
                 kernels::StreamKind::kCompute);
  return device()->Synchronize(device()->Record(kernels::StreamKind::kCompute));
}

absl::Status GptModel::UploadPrompt(absl::Span<const int32_t> tokens) {
  if (tokens.empty()) {
    return absl::InvalidArgumentError("there is no token to continue from; give a prompt");
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= gpt_.vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("the prompt has token ", token, ", but the model has tokens 0 to ",
                       gpt_.vocabulary - 1, "; give the model's own tokenizer"));
    }
  }
  device()->Copy(inputs().data, tokens.data(), tokens.size() * sizeof(int32_t),
                 kernels::StreamKind::kCompute);
  return absl::OkStatus();
}

}  // namespace lodestar::model
