// SPDX-License-Identifier: Apache-2.0

// MlpModel is a fully connected classifier with ReLU between layers. Each layer is a block.
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
  // config.spec must hold an MlpSpec. Called only by model_factory.
  MlpModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters,
           kernels::Device* device);

 protected:
  absl::Status Forward(const Pass& pass, WeightsGate* gate) override;
  absl::Status Backward(const Pass& pass, kernels::Accumulate weights, GradientSink* sink) override;

 private:
  int last() const { return static_cast<int>(layers_.size()) - 1; }
  kernels::Buf InputOf(int layer) const { return layer == 0 ? inputs() : layers_[layer - 1].y(); }

  // The last layer writes to logits().
  std::vector<LinearLayer> layers_;
  // Gradient to the output of each layer but the last.
  std::vector<kernels::Buf> dy_;
};

}  // namespace lodestar::model
