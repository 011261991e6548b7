// SPDX-License-Identifier: Apache-2.0

#include "worker/model/mlp_model.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::model {
namespace {

SampleShape ShapeOf(const params::MlpSpec& mlp) {
  return {.inputs = mlp.widths.front(), .predictions = 1, .classes = mlp.widths.back()};
}

}  // namespace

MlpModel::MlpModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters,
                   kernels::Device* device)
    : BatchedModel(config, ShapeOf(std::get<params::MlpSpec>(config.spec.architecture)),
                   std::move(parameters), device) {
  const std::vector<int>& widths = std::get<params::MlpSpec>(config.spec.architecture).widths;
  const int num_layers = static_cast<int>(widths.size()) - 1;
  for (int i = 0; i < num_layers; ++i) {
    const std::string name = absl::StrCat("fc", i);
    layers_.emplace_back(
        parameter_arena().Get(name + ".weight"), parameter_arena().Get(name + ".bias"), widths[i],
        widths[i + 1], i + 1 < num_layers ? kernels::Activation::kRelu : kernels::Activation::kNone,
        kernels::WeightOrder::kOutIn);
  }
  dy_.resize(last());
  for (int i = 0; i < last(); ++i) {
    layers_[i].Plan(max_batch(), dtype(), activation_arena());
    activation_arena()->Plan(&dy_[i], max_batch() * widths[i + 1], dtype());
  }
}

absl::Status MlpModel::Forward(const Pass& pass, WeightsGate* gate) {
  for (int i = 0; i <= last(); ++i) {
    RETURN_IF_ERROR(WaitForBlock(gate, i));
    const kernels::Buf y = i < last() ? layers_[i].y() : logits();
    layers_[i].Forward(device(), y, InputOf(i), pass.samples);
  }
  return absl::OkStatus();
}

absl::Status MlpModel::Backward(const Pass& pass, kernels::Accumulate weights, GradientSink* sink) {
  for (int i = last(); i >= 0; --i) {
    const kernels::Buf dx = i > 0 ? dy_[i - 1] : kernels::Buf{};
    const kernels::Buf dy = i < last() ? dy_[i] : logits();
    layers_[i].Backward(device(), dx, dy, InputOf(i), pass.samples, weights);
    RETURN_IF_ERROR(ReportBlock(sink, i));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::model
