// SPDX-License-Identifier: Apache-2.0

#include "worker/model/cnn_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/runtime/status_macros.h"

namespace lodestar::model {
namespace {

const params::CnnSpec& SpecOf(const ModelConfig& config) {
  return std::get<params::CnnSpec>(config.spec.architecture);
}

SampleShape ShapeOf(const params::CnnSpec& cnn) {
  return {.inputs = int64_t{cnn.image_channels} * cnn.image_height * cnn.image_width,
          .predictions = 1,
          .classes = cnn.num_classes};
}

std::vector<ConvStage> MakeStages(const params::CnnSpec& cnn, int64_t max_batch,
                                  const ParameterArena& parameters) {
  std::vector<ConvStage> stages;
  kernels::ConvShape shape{max_batch, cnn.image_channels, cnn.image_height, cnn.image_width, 0};
  for (size_t i = 0; i < cnn.channels.size(); ++i) {
    shape.out_channels = cnn.channels[i];
    const std::string name = absl::StrCat("conv", i);
    stages.emplace_back(parameters.Get(name + ".weight"), parameters.Get(name + ".bias"), shape);
    shape.in_channels = shape.out_channels;
    shape.height /= 2;
    shape.width /= 2;
  }
  return stages;
}

}  // namespace

CnnModel::CnnModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters,
                   kernels::Device* device)
    : BatchedModel(config, ShapeOf(SpecOf(config)), std::move(parameters), device),
      stages_(MakeStages(SpecOf(config), config.max_batch, parameter_arena())),
      hidden_(parameter_arena().Get("fc0.weight"), parameter_arena().Get("fc0.bias"),
              stages_.back().output_elements(), SpecOf(config).hidden_width,
              kernels::Activation::kRelu, kernels::WeightOrder::kOutIn),
      classifier_(parameter_arena().Get("fc1.weight"), parameter_arena().Get("fc1.bias"),
                  SpecOf(config).hidden_width, SpecOf(config).num_classes,
                  kernels::Activation::kNone, kernels::WeightOrder::kOutIn) {
  PlanBuffers();
}

void CnnModel::PlanBuffers() {
  int64_t workspace_elements = 0;
  for (ConvStage& stage : stages_) {
    stage.Plan(dtype(), activation_arena());
    workspace_elements =
        std::max(workspace_elements, device()->ConvWorkspaceElements(stage.max_shape()));
  }
  activation_arena()->Plan(&workspace_, workspace_elements, dtype());
  hidden_.Plan(max_batch(), dtype(), activation_arena());
  activation_arena()->Plan(&dhidden_, max_batch() * hidden_.out(), dtype());
}

absl::Status CnnModel::Forward(const Pass& pass, WeightsGate* gate) {
  for (int i = 0; i < num_stages(); ++i) {
    RETURN_IF_ERROR(WaitForBlock(gate, i));
    stages_[i].Forward(device(), InputOf(i), workspace_, pass.samples);
  }
  RETURN_IF_ERROR(WaitForBlock(gate, num_stages()));
  hidden_.Forward(device(), hidden_.y(), stages_.back().y(), pass.samples);
  RETURN_IF_ERROR(WaitForBlock(gate, num_stages() + 1));
  classifier_.Forward(device(), logits(), hidden_.y(), pass.samples);
  return absl::OkStatus();
}

absl::Status CnnModel::Backward(const Pass& pass, kernels::Accumulate weights, GradientSink* sink) {
  classifier_.Backward(device(), dhidden_, logits(), hidden_.y(), pass.samples, weights);
  RETURN_IF_ERROR(ReportBlock(sink, num_stages() + 1));
  hidden_.Backward(device(), stages_.back().dy(), dhidden_, stages_.back().y(), pass.samples,
                   weights);
  RETURN_IF_ERROR(ReportBlock(sink, num_stages()));
  for (int i = num_stages() - 1; i >= 0; --i) {
    const kernels::Buf dx = i > 0 ? stages_[i - 1].dy() : kernels::Buf{};
    stages_[i].Backward(device(), dx, InputOf(i), workspace_, pass.samples, weights);
    RETURN_IF_ERROR(ReportBlock(sink, i));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::model
