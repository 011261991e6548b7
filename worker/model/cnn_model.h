// Convolutional classifier: stages of convolution and pooling, a hidden layer, a linear classifier.
// Each is a block.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "worker/model/batched_model.h"
#include "worker/model/conv_stage.h"
#include "worker/model/linear_layer.h"
#include "worker/model/model.h"

namespace lodestar {

class CnnModel final : public BatchedModel {
 public:
  // Errors: those of MakeModel(). config.spec must hold a CnnSpec.
  static absl::StatusOr<std::unique_ptr<CnnModel>> Create(const ModelConfig& config,
                                                          Device* device);

 protected:
  absl::Status Forward(int64_t samples, WeightsGate* gate) override;
  absl::Status Backward(int64_t samples, Accumulate weights, GradientSink* sink) override;

 private:
  CnnModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters, Device* device);

  void PlanBuffers();
  int num_stages() const { return static_cast<int>(stages_.size()); }
  Buf InputOf(int stage) const { return stage == 0 ? inputs() : stages_[stage - 1].y(); }

  std::vector<ConvStage> stages_;
  LinearLayer hidden_;
  LinearLayer classifier_;  // writes to logits()
  Buf dhidden_;
  Buf workspace_;  // shared by the stages
};

}  // namespace lodestar
