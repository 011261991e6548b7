// GPT-2 architecture (Radford et al. 2019): learned positions, pre-norm, GELU in its tanh form,
// head tied to the token table. Blocks: 0 the two tables, 1..num_layers the layers, num_layers + 1
// the last norm.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model_spec.h"
#include "kernels/device.h"
#include "worker/model/batched_model.h"
#include "worker/model/gpt_blocks.h"
#include "worker/model/model.h"
#include "worker/model/next_token_model.h"
#include "worker/model/norm_layer.h"

namespace lodestar {

class GptModel final : public BatchedModel, public NextTokenModel {
 public:
  // Errors: those of MakeModel(). config.spec must hold a GptSpec.
  static absl::StatusOr<std::unique_ptr<GptModel>> Create(const ModelConfig& config,
                                                          Device* device);

  NextTokenModel* next_token_model() override { return this; }
  int64_t vocabulary() const override { return gpt_.vocabulary; }
  int64_t context() const override { return gpt_.context; }
  absl::Status NextTokenLogits(absl::Span<const int32_t> tokens,
                               std::vector<float>* logits) override;

 protected:
  absl::Status Forward(int64_t samples, WeightsGate* gate) override;
  absl::Status Backward(int64_t samples, Accumulate weights, GradientSink* sink) override;

 private:
  struct Layer {
    NormLayer norm1;
    AttentionBranch attention;
    NormLayer norm2;
    MlpBranch mlp;
  };

  GptModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters, Device* device);

  void PlanBuffers();
  // Checks `tokens` and copies them into inputs().
  absl::Status UploadPrompt(absl::Span<const int32_t> tokens);
  AttentionShape Shape(int64_t samples, int64_t tokens) const;
  // From inputs() [batch, tokens] to last_norm_.y().
  absl::Status ForwardLayers(const AttentionShape& shape, WeightsGate* gate);
  // logits() = x wte^T
  void ForwardHead(Buf x, int64_t rows);
  void BackwardHead(int64_t rows, Accumulate weights);
  void BackwardLayer(const Layer& layer, const AttentionShape& shape, Accumulate weights);
  void BackwardTables(int64_t rows, Accumulate weights);

  const GptSpec gpt_;
  Parameter token_table_;     // wte [vocabulary, width]
  Parameter position_table_;  // wpe [context, width]
  std::vector<Layer> layers_;
  NormLayer last_norm_;
  Buf dresidual_;  // gradient to the residual stream
  GptScratch scratch_;
  Buf prompt_logits_;  // f32 [vocabulary], where the device computes in another dtype
};

}  // namespace lodestar
