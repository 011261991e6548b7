// GptModel is the GPT-2 architecture (Radford et al. 2019): learned positions, pre-norm, GELU in
// its tanh form, and a head tied to the token table. Block 0 is the two tables, blocks
// 1..num_layers are the layers, and block num_layers + 1 is the last norm.
//
// The embedding only reads those rows of the token table whose tokens the data has, and only
// changes the gradient of these rows; the head reads and changes all rows. So the gate is asked for
// these rows first and for the rest before the head. The sink is told of the rest once the head's
// backward is done.
//
// A row counts as a row of the data if any batch so far has had its token, not only the batch at
// hand. So the rest is the same from step to step, and nearly the same for all workers. This
// matters because servers add contributions to a bucket in the order of the workers: they could
// take in only a few buckets that one worker sends long before another.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/params/model_spec.h"
#include "kernels/device.h"
#include "worker/model/batched_model.h"
#include "worker/model/gpt_blocks.h"
#include "worker/model/model.h"
#include "worker/model/next_token_model.h"
#include "worker/model/norm_layer.h"
#include "worker/model/table_rows.h"

namespace lodestar::model {

class GptModel final : public BatchedModel, public NextTokenModel {
 public:
  // config.spec must hold a GptSpec. Only model_factory makes models.
  GptModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters,
           kernels::Device* device);
  // Returns the room for the rows behind the token table that the padding of the logits reads.
  static int64_t PaddingElements(const ModelConfig& config, kernels::Device* device);

  NextTokenModel* next_token_model() override { return this; }
  int64_t vocabulary() const override { return gpt_.vocabulary; }
  int64_t context() const override { return gpt_.context; }
  absl::Status NextTokenLogits(absl::Span<const int32_t> tokens,
                               std::vector<float>* logits) override;

 protected:
  void OnBatch(const data::HostBatch& batch) override { token_rows_.Note(batch.tokens); }
  absl::Status Forward(const Pass& pass, WeightsGate* gate) override;
  absl::Status Backward(const Pass& pass, kernels::Accumulate weights, GradientSink* sink) override;

 private:
  struct Layer {
    NormLayer norm1;
    AttentionBranch attention;
    NormLayer norm2;
    MlpBranch mlp;
  };

  // A pass over sequences of `tokens` tokens each.
  struct Sequences {
    Pass pass;
    int64_t tokens = 0;
    int64_t rows() const { return pass.samples * tokens; }
  };

  void PlanBuffers();
  void PlanLayers(int64_t max_rows);
  // Checks `tokens` and copies them into inputs().
  absl::Status UploadPrompt(absl::Span<const int32_t> tokens);
  kernels::AttentionShape Attention(const Sequences& sequences, int layer) const;
  // Returns the mask of the `site`-th place that drops. It is off if the pass is no training.
  kernels::DropoutMask Mask(const Pass& pass, int site, int64_t elements_per_sample) const;
  kernels::DropoutMask MaskOfEmbedding(const Sequences& sequences) const;
  kernels::DropoutMask MaskOfAttention(const Sequences& sequences, int layer) const;
  kernels::DropoutMask MaskOfMlp(const Sequences& sequences, int layer) const;
  // WaitForLookups() waits for the weights that the embedding reads, and WaitForHead() for those
  // that only the head reads.
  absl::Status WaitForLookups(WeightsGate* gate);
  absl::Status WaitForHead(WeightsGate* gate);
  // Computes last_norm_.y() from inputs() [samples, tokens].
  absl::Status ForwardLayers(const Sequences& sequences, WeightsGate* gate);
  // The residual stream is residual + branch before the layer, and norm2.sum() + scratch_.branch
  // after it.
  void ForwardLayer(int layer, kernels::Buf residual, kernels::Buf branch,
                    const Sequences& sequences);
  // Sets logits() = x wte^T.
  void ForwardHead(kernels::Buf x, int64_t rows);
  void BackwardHead(int64_t rows, kernels::Accumulate weights);
  void BackwardLayer(int layer, const Sequences& sequences, kernels::Accumulate weights);
  // Computes again those activations of the layer that backward needs and that were not kept
  // because of recompute_.
  void RecomputeLayer(int layer, const Sequences& sequences);
  void BackwardTables(const Sequences& sequences, kernels::Accumulate weights);
  // Returns where a micro-batch's gradient of the token table is put together. The gradient of the
  // first micro-batch is put together in its place. Later ones, which are added to it, are put
  // together in later_table_gradient_.
  kernels::Buf TableGradient(kernels::Accumulate weights) const;
  // Adds later_table_gradient_ to the gradient in `parts`, which are elements of the parameter
  // space.
  void AddToTableGradient(absl::Span<const ElementRange> parts);
  // Tells the sink, once the head's backward is done, of the rows of the token table that no lookup
  // reads.
  absl::Status ReportRest(kernels::Accumulate weights, GradientSink* sink);

  const GptSpec gpt_;
  const Recompute recompute_;
  const uint64_t seed_;
  // The number of rows of the head: the vocabulary and, if rows of logits are padded, rows that lie
  // behind the table. The logits of the rows behind it are garbage that is not read, and their
  // gradient is zero.
  const int64_t head_rows_;
  Parameter token_table_;     // wte.weight [vocabulary, width]
  Parameter position_table_;  // wpe.weight [context, width]
  // [head_rows_, width]. Two operations write a micro-batch's gradient of the token table: here
  // their results are added up before the gradient is added to that of other micro-batches. So the
  // sum has the same bits if other devices computed some of the micro-batches.
  kernels::Buf later_table_gradient_;
  TableRows token_rows_;  // the rows whose tokens the data has
  std::vector<Layer> layers_;
  NormLayer last_norm_;
  kernels::Buf dresidual_;  // gradient to the residual stream
  GptScratch scratch_;
  kernels::Buf
      prompt_logits_;  // f32 [vocabulary]; empty unless the device computes in another dtype
};

}  // namespace lodestar::model
