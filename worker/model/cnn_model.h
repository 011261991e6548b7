// SPDX-License-Identifier: Apache-2.0

// CnnModel is a convolutional classifier: stages of convolution and pooling, a hidden layer, and a
// linear classifier. Each stage or layer is a block.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "worker/model/batched_model.h"
#include "worker/model/conv_stage.h"
#include "worker/model/linear_layer.h"
#include "worker/model/model.h"

namespace lodestar::model {

class CnnModel final : public BatchedModel {
 public:
  // config.spec must hold a CnnSpec. Called only by model_factory.
  CnnModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters,
           kernels::Device* device);

 protected:
  absl::Status Forward(const Pass& pass, WeightsGate* gate) override;
  absl::Status Backward(const Pass& pass, kernels::Accumulate weights, GradientSink* sink) override;

 private:
  void PlanBuffers();
  int num_stages() const { return static_cast<int>(stages_.size()); }
  kernels::Buf InputOf(int stage) const { return stage == 0 ? inputs() : stages_[stage - 1].y(); }

  std::vector<ConvStage> stages_;
  LinearLayer hidden_;
  LinearLayer classifier_;  // Writes to logits().
  kernels::Buf dhidden_;
  kernels::Buf workspace_;  // Shared by all stages, which run one after the other.
};

}  // namespace lodestar::model
