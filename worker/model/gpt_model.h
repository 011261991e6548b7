// SPDX-License-Identifier: Apache-2.0

// GptModel is the GPT-2 architecture (Radford et al. 2019): learned positions, pre-norm, GELU in
// its tanh form, and a head that uses the token table as weights. Its blocks are:
// - block 0: the token table and the position table;
// - blocks 1..num_layers: the layers;
// - block num_layers + 1: the last norm.
//
// The embedding reads only the rows of the token table whose tokens occur in the data. The head
// reads all rows. So the table is transferred in two parts:
// - Used rows: their tokens were in a batch so far. Forward waits for them before the embedding.
// - Other rows: forward waits for them before the head. Backward reports their gradient to the sink
//   as soon as the head's backward is done.
//
// The other rows are the same from step to step, and nearly the same for all workers. This is
// important, because servers add contributions to a bucket in the order of the workers. If one
// worker sent buckets long before the others, servers could hold only a few of them.
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
  // config.spec must hold a GptSpec. Called only by model_factory.
  GptModel(const ModelConfig& config, std::unique_ptr<ParameterArena> parameters,
           kernels::Device* device);
  // Returns the number of additional elements behind the token table. The head needs them if it has
  // more rows than the vocabulary.
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
  // Returns the mask of dropout number `site` of the model. If the pass is not training, nothing is
  // dropped.
  kernels::DropoutMask Mask(const Pass& pass, int site, int64_t elements_per_sample) const;
  kernels::DropoutMask MaskOfEmbedding(const Sequences& sequences) const;
  kernels::DropoutMask MaskOfAttention(const Sequences& sequences, int layer) const;
  kernels::DropoutMask MaskOfMlp(const Sequences& sequences, int layer) const;
  // WaitForLookups() waits for the rows of both tables that the embedding reads. WaitForHead()
  // waits for all other rows of the token table.
  absl::Status WaitForLookups(WeightsGate* gate);
  absl::Status WaitForHead(WeightsGate* gate);
  // Computes last_norm_.y() from inputs() [samples, tokens].
  absl::Status ForwardLayers(const Sequences& sequences, WeightsGate* gate);
  // Computes one layer. The residual stream is `residual` + `branch` before the layer, and
  // norm2.sum() + scratch_.branch after the layer.
  void ForwardLayer(int layer, kernels::Buf residual, kernels::Buf branch,
                    const Sequences& sequences);
  // Sets logits() = x wte^T.
  void ForwardHead(kernels::Buf x, int64_t rows);
  void BackwardHead(int64_t rows, kernels::Accumulate weights);
  void BackwardLayer(int layer, const Sequences& sequences, kernels::Accumulate weights);
  // Recomputes the activations of the layer that backward needs and that were not kept.
  void RecomputeLayer(int layer, const Sequences& sequences);
  void BackwardTables(const Sequences& sequences, kernels::Accumulate weights);
  // Returns the buffer for the gradient of the token table in one micro-batch. In the first
  // micro-batch this is the gradient itself. In later ones it is later_table_gradient_, which is
  // added to the gradient afterwards.
  kernels::Buf TableGradient(kernels::Accumulate weights) const;
  // Adds later_table_gradient_ to the gradient, in `parts` of the parameter space.
  void AddToTableGradient(absl::Span<const params::ElementRange> parts);
  // Calls the sink with the rows of the token table that no lookup has read. Must be called once
  // the head's backward is done.
  absl::Status ReportRest(kernels::Accumulate weights, GradientSink* sink);

  const params::GptSpec gpt_;
  const Recompute recompute_;
  const uint64_t seed_;
  // Number of rows of the head. If rows of logits are padded, it is larger than the vocabulary. The
  // additional logits are not read, and their gradient is zero.
  const int64_t head_rows_;
  Parameter token_table_;     // wte.weight [vocabulary, width]
  Parameter position_table_;  // wpe.weight [context, width]
  // [head_rows_, width]. Both the head and the embedding contribute to the gradient of the token
  // table. In later micro-batches, their sum is first computed here. Then it is added to the
  // gradient of the earlier micro-batches. So several devices, with a micro-batch each, give the
  // same bits as one device.
  kernels::Buf later_table_gradient_;
  // Records the rows whose tokens were in a batch so far.
  TableRows token_rows_;
  std::vector<Layer> layers_;
  NormLayer last_norm_;
  kernels::Buf dresidual_;  // Gradient to the residual stream.
  GptScratch scratch_;
  kernels::Buf prompt_logits_;  // f32 [vocabulary]. Empty if the device computes in f32.
};

}  // namespace lodestar::model
