// GPT-2 architecture (Radford et al. 2019): learned positions, pre-norm, GELU in its tanh form,
// head tied to the token table. Blocks: 0 the two tables, 1..num_layers the layers, num_layers + 1
// the last norm.
//
// Of the token table the embedding reads, and changes the gradient of, those rows alone whose
// tokens the data has; all of it only the head does. So the gate is asked for these rows first and
// for the rest before the head, and the sink told of the rest once the head's backward is done.
// Rows that any batch has had count as rows of the data, not those of the batch at hand: what is
// left out is the same from step to step, and nearly so for all workers. Servers add contributions
// to a bucket in the order of the workers, and could take in but few that one of them sends long
// before another.
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
#include "worker/model/table_rows.h"

namespace lodestar {

class GptModel final : public BatchedModel, public NextTokenModel {
 public:
  // config.spec must hold a GptSpec. Made by model_factory.
  GptModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters, Device* device);
  // Room for the rows of the token table that the padding of the logits reads.
  static int64_t PaddingElements(const ModelConfig& config, Device* device);

  NextTokenModel* next_token_model() override { return this; }
  int64_t vocabulary() const override { return gpt_.vocabulary; }
  int64_t context() const override { return gpt_.context; }
  absl::Status NextTokenLogits(absl::Span<const int32_t> tokens,
                               std::vector<float>* logits) override;

 protected:
  void OnBatch(const HostBatch& batch) override { token_rows_.Note(batch.tokens); }
  absl::Status Forward(const Pass& pass, WeightsGate* gate) override;
  absl::Status Backward(const Pass& pass, Accumulate weights, GradientSink* sink) override;

 private:
  struct Layer {
    NormLayer norm1;
    AttentionBranch attention;
    NormLayer norm2;
    MlpBranch mlp;
  };

  // A pass over sequences of `tokens`, with the masks of each place that drops.
  struct Sequences {
    Pass pass;
    int64_t tokens = 0;
    int64_t rows() const { return pass.samples * tokens; }
  };

  void PlanBuffers();
  void PlanLayers(int64_t max_rows);
  // Checks `tokens` and copies them into inputs().
  absl::Status UploadPrompt(absl::Span<const int32_t> tokens);
  AttentionShape Attention(const Sequences& sequences, int layer) const;
  // Of the `site`-th place that drops; off where the pass is no training.
  DropoutMask Mask(const Pass& pass, int site, int64_t elements_per_sample) const;
  DropoutMask MaskOfEmbedding(const Sequences& sequences) const;
  DropoutMask MaskOfAttention(const Sequences& sequences, int layer) const;
  DropoutMask MaskOfMlp(const Sequences& sequences, int layer) const;
  // For what the embedding reads, and for what only the head does.
  absl::Status WaitForLookups(WeightsGate* gate);
  absl::Status WaitForHead(WeightsGate* gate);
  // From inputs() [samples, tokens] to last_norm_.y().
  absl::Status ForwardLayers(const Sequences& sequences, WeightsGate* gate);
  // The stream before the layer is residual + branch; after it, norm2.sum() + scratch_.branch.
  void ForwardLayer(int layer, Buf residual, Buf branch, const Sequences& sequences);
  // logits() = x wte^T
  void ForwardHead(Buf x, int64_t rows);
  void BackwardHead(int64_t rows, Accumulate weights);
  void BackwardLayer(int layer, const Sequences& sequences, Accumulate weights);
  // Brings back what backward needs of the layer and config_.recompute did not keep.
  void RecomputeLayer(int layer, const Sequences& sequences);
  void BackwardTables(const Sequences& sequences, Accumulate weights);
  // Where a micro-batch's gradient of the token table is put together: of the first one in its
  // place, of those that are added to it in later_table_gradient_.
  Buf TableGradient(Accumulate weights) const;
  // Elements of the parameter space.
  void AddToTableGradient(absl::Span<const ElementRange> parts);
  // Of the token table, what no lookup reads, once the head's backward is done.
  absl::Status ReportRest(Accumulate weights, GradientSink* sink);

  const GptSpec gpt_;
  const Recompute recompute_;
  const uint64_t seed_;
  // Rows of the head: the vocabulary and, where rows of logits are padded, what lies behind the
  // table. Their logits are garbage that nobody reads, and their gradient is zero.
  const int64_t head_rows_;
  Parameter token_table_;     // wte.weight [vocabulary, width]
  Parameter position_table_;  // wpe.weight [context, width]
  // [head_rows_, width]. Two operations write a micro-batch's gradient of the token table, and meet
  // here before it is added: so that the sum has the same bits where other devices computed some
  // of the micro-batches.
  Buf later_table_gradient_;
  TableRows token_rows_;  // that the data has
  std::vector<Layer> layers_;
  NormLayer last_norm_;
  Buf dresidual_;  // gradient to the residual stream
  GptScratch scratch_;
  Buf prompt_logits_;  // f32 [vocabulary], where the device computes in another dtype
};

}  // namespace lodestar
