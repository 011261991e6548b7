// SPDX-License-Identifier: Apache-2.0

// Model computes forward and backward on a Device, with hand-written gradients. Its memory is two
// arenas, which are allocated before the first step. Parameters and gradients are one flat vector
// each, in the order of the layout, so that a bucket of the layout is a slice.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "kernels/device.h"
#include "kernels/device_set.h"
#include "worker/data/dataset.h"

namespace lodestar::model {

class NextTokenModel;

// A gate makes forward wait for weights that still arrive. Forward calls it before it first reads
// the weights of a block.
class WeightsGate {
 public:
  virtual ~WeightsGate() = default;
  // Blocks until the block's weights have arrived. May be called again for the same block. An error
  // ends the step.
  virtual absl::Status WaitForBlock(int block) = 0;
  // Blocks until `parts` of the block have arrived. The parts are in order. Before forward reads
  // other parts of the block, it calls WaitForBlock(). The default implementation waits for the
  // whole block.
  virtual absl::Status WaitForParts(int block, absl::Span<const params::ElementRange> /*parts*/) {
    return WaitForBlock(block);
  }
};

// Backward calls a sink when the gradient of a block is final. The last block comes first.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Called once before the first BlockReady(), when forward and loss have been queued.
  virtual void BackwardBegins() {}
  virtual absl::Status BlockReady(int block) = 0;
  // Called when the gradient of `parts` of the block is final earlier than the rest. The parts are
  // in order. BlockReady() is called for the whole block later, so a sink may ignore PartsReady().
  virtual absl::Status PartsReady(int /*block*/, absl::Span<const params::ElementRange> /*parts*/) {
    return absl::OkStatus();
  }
};

// Results of a batch, summed over its predictions. A gpt predicts once per token, a classifier once
// per sample.
struct BatchResult {
  double loss_sum = 0.0;    // In nats.
  int64_t num_correct = 0;  // Counted by Evaluate() only.
  int64_t num_predictions = 0;
  // Number of samples of the batch that are not in the sums and not in the gradient. A negative
  // number means that the sums include samples that earlier steps counted as lost.
  int64_t num_lost_samples = 0;
  // True if the step has computed no gradient and has not called BlockReady(). Such a step counts
  // as done, but changes no weights.
  bool is_skipped = false;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const params::Layout& layout() const = 0;
  // Return flat vectors in device memory with layout().num_elements() elements. They are f32, or
  // f64 if the device computes in f64.
  virtual kernels::Buf parameters() = 0;
  virtual kernels::Buf gradients() = 0;
  // If the device computes in a narrower dtype, returns the parameters in that dtype, which forward
  // and backward read. Otherwise returns an empty buffer. If a gate is used, each block is
  // converted from parameters() when its weights have arrived. Other code that changes parameters()
  // must also write narrow_parameters(), or call RefreshNarrowParameters().
  virtual kernels::Buf narrow_parameters() { return {}; }
  virtual void RefreshNarrowParameters() {}
  // Returns the learning rate that the servers are to make the step of the block with, if the
  // model's program has one. It is known once the first block is ready.
  virtual std::optional<double> learning_rate(int /*block*/) { return std::nullopt; }
  // Returns the weight of the round's contribution in the mean, summed over the round's steps, if
  // the model's program gives one. It is known once the last step's first block is ready.
  virtual std::optional<int64_t> contribution_weight() { return std::nullopt; }
  // Returns true if a program computes the steps, which may give rates and weights in each.
  virtual bool has_program() const { return false; }

  // Sets gradients() to the gradient of the mean loss over batch.MeanOver() predictions. Blocks
  // until the losses are known. `gate` and `sink` may be null.
  //
  // Calls the sink for each block once the commands that complete the block's gradient are queued
  // on the compute stream. The device may not have executed them yet.
  //
  // Errors: InvalidArgument for a batch that does not fit the model; those of gate, sink and
  // device.
  virtual absl::StatusOr<BatchResult> TrainStep(const data::HostBatch& batch, WeightsGate* gate,
                                                GradientSink* sink) = 0;
  // Computes only the loss. Accepts any number of samples, in pieces of max_batch. `gate` may be
  // null.
  virtual absl::StatusOr<BatchResult> Evaluate(const data::HostBatch& batch, WeightsGate* gate) = 0;
  // Returns the maximum number of samples that go through the network at once. A larger batch is
  // evaluated in several passes.
  virtual int64_t samples_per_pass() const { return std::numeric_limits<int64_t>::max(); }

  // Returns the model as a NextTokenModel. Null means that the architecture cannot continue text.
  virtual NextTokenModel* next_token_model() { return nullptr; }
};

// Says which activations of a gpt are computed again in backward instead of being kept. On the CPU
// the gradients are the same to the bit. If activations are stored in a narrow dtype, gradients may
// differ by rounding.
enum class Recompute : uint8_t {
  kNone,
  // Recomputes the outputs of the GELUs. Saves up to a quarter of the memory for activations, and
  // costs one more pass over memory.
  kGelu,
  // Recomputes everything except the inputs of the layers. Costs a third more arithmetic.
  kBlock,
};

// Returns the value of a worker's --recompute: "none", "gelu" or "block".
constexpr absl::string_view RecomputeName(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kGelu:
      return "gelu";
    case Recompute::kBlock:
      return "block";
  }
  return "";
}

struct ModelConfig {
  params::ModelSpec spec;
  // Maximum number of samples per forward and backward. A larger batch is divided into
  // micro-batches, whose gradients are added.
  int64_t max_batch = 1;
  Recompute recompute = Recompute::kNone;
  // Seed of dropout. The dropped elements depend on the seed and on HostBatch::first_position.
  uint64_t seed = 1;
  // Layout of a job that uses BuildEarlierLayout(spec). Not set means BuildLayout(spec).
  std::optional<params::Layout> layout = {};
};

// Makes a model and allocates its memory on `device`, which must outlive it. Errors: those of
// BuildLayout(); InvalidArgument for a max_batch below 1; ResourceExhausted naming the bytes wanted
// and free, and the flags to change.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config,
                                                 kernels::Device* device);
// Makes a model on all of `devices`, which must outlive it. Each device computes up to
// config.max_batch samples at once.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config,
                                                 const kernels::DeviceSet& devices);

}  // namespace lodestar::model
