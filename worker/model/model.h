// Model is straight-line forward and backward over a Device, with hand-written gradients and two
// planned arenas. Parameters and gradients are one flat vector each, in the order of the layout, so
// a bucket of the layout is a slice.
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

// Forward asks the gate before it first reads a block's weights, so that weights may still be
// arriving.
class WeightsGate {
 public:
  virtual ~WeightsGate() = default;
  // Waits until the block's weights are in place. It may be called again. Errors end the step.
  virtual absl::Status WaitForBlock(int block) = 0;
  // Waits for `parts` of the block, which are in order, if forward reads no more of it yet. Before
  // forward reads more, it calls WaitForBlock(). If a gate gets blocks in one piece, it waits for
  // the whole block.
  virtual absl::Status WaitForParts(int block, absl::Span<const ElementRange> /*parts*/) {
    return WaitForBlock(block);
  }
};

// Backward tells the sink when a block's gradient is final, in the order of production (last block
// first).
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Is called before the first block, when forward and loss have been queued.
  virtual void BackwardBegins() {}
  virtual absl::Status BlockReady(int block) = 0;
  // Is called when the gradient of `parts` of the block, which are in order, is final before that
  // of the rest. BlockReady() is called all the same, so that a sink may ignore this.
  virtual absl::Status PartsReady(int /*block*/, absl::Span<const ElementRange> /*parts*/) {
    return absl::OkStatus();
  }
};

// The sums over the samples' predictions (tokens of a gpt, samples of a classifier).
struct BatchResult {
  double loss_sum = 0.0;    // nats
  int64_t num_correct = 0;  // only Evaluate() counts these
  int64_t num_predictions = 0;
  // The number of the batch's samples that are in no sum and in no gradient. A number below zero
  // means that these sums include samples of earlier steps, which counted them as lost.
  int64_t num_lost_samples = 0;
  // True if there is no gradient, and the sink was told of no block. The step counts, and changes
  // nothing.
  bool is_skipped = false;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const Layout& layout() const = 0;
  // Both return flat vectors in device memory, with layout().num_elements() elements. They are f32,
  // or f64 if the device computes in f64.
  virtual kernels::Buf parameters() = 0;
  virtual kernels::Buf gradients() = 0;
  // If the device computes in a narrower type, returns the parameters in that type, which is what
  // forward and backward read; else returns an empty buffer. With a gate, the model brings them up
  // to date with parameters() block by block. A caller that changes parameters() otherwise also
  // writes these, or calls RefreshNarrowParameters().
  virtual kernels::Buf narrow_parameters() { return {}; }
  virtual void RefreshNarrowParameters() {}

  // Sets gradients() to the gradient of the mean loss over the batch's predictions
  // (HostBatch::mean_over). Tells the sink of each block as soon as it is final on the compute
  // stream, which the device may still be working on. Waits for the losses. `gate` and `sink` may
  // be null. Errors: InvalidArgument for a batch that does not fit the model; those of gate, sink
  // and device.
  virtual absl::StatusOr<BatchResult> TrainStep(const data::HostBatch& batch, WeightsGate* gate,
                                                GradientSink* sink) = 0;
  // Computes the loss only, of any number of samples, which it cuts into pieces of max_batch.
  // `gate` may be null.
  virtual absl::StatusOr<BatchResult> Evaluate(const data::HostBatch& batch, WeightsGate* gate) = 0;
  // Returns how many samples pass through the network together. Evaluate() with as many is one
  // pass.
  virtual int64_t samples_per_pass() const { return std::numeric_limits<int64_t>::max(); }

  // Returns the same model as one that continues text, or null if its architecture does not.
  virtual NextTokenModel* next_token_model() { return nullptr; }
};

// Says which activations of a gpt are computed again by backward, and not kept. The gradients are
// the same: to the bit on the CPU, up to roundings if activations are stored in a narrow type.
enum class Recompute : uint8_t {
  kNone,
  kGelu,   // the outputs of the GELUs: up to a quarter less memory, a pass over memory more
  kBlock,  // everything but the inputs of the layers: a third more arithmetic
};

// Returns the name that --recompute of a worker has for it: "none", "gelu", "block".
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
  ModelSpec spec;
  // The number of samples per forward and backward. A larger batch is cut into micro-batches whose
  // gradients are accumulated.
  int64_t max_batch = 1;
  Recompute recompute = Recompute::kNone;
  // What dropout drops is a function of the seed and of the place of a sample (HostBatch).
  uint64_t seed = 1;
  // The layout of the job, if that is BuildEarlierLayout(spec). If not set, the layout is
  // BuildLayout(spec).
  std::optional<Layout> layout = {};
};

// Allocates both arenas on `device`, which must outlive the model.
// Errors: those of BuildLayout(); InvalidArgument for max_batch below 1; ResourceExhausted naming
// bytes asked for and free, and the flags to change.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config,
                                                 kernels::Device* device);
// Makes a model on all of `devices`, which must outlive it. Each device has config.max_batch.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config,
                                                 const kernels::DeviceSet& devices);

}  // namespace lodestar::model
