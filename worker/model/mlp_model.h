// Fully connected classifier: ReLU between layers. Each layer is a block.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "worker/model/batched_model.h"
#include "worker/model/linear_layer.h"
#include "worker/model/model.h"

namespace lodestar::model {

class MlpModel final : public BatchedModel {
 public:
  // config.spec must hold an MlpSpec. Made by model_factory.
  MlpModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters,
           kernels::Device* device);

 protected:
  absl::Status Forward(const Pass& pass, WeightsGate* gate) override;
  absl::Status Backward(const Pass& pass, kernels::Accumulate weights, GradientSink* sink) override;

 private:
  int last() const { return static_cast<int>(layers_.size()) - 1; }
  kernels::Buf InputOf(int layer) const { return layer == 0 ? inputs() : layers_[layer - 1].y(); }

  std::vector<LinearLayer> layers_;  // the last one writes to logits()
  std::vector<kernels::Buf> dy_;     // gradient to the output of each layer but the last
};

}  // namespace lodestar::model
