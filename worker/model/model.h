// Model: straight-line forward and backward over a Device, with hand-written gradients and two
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
#include "common/layout.h"
#include "common/model_spec.h"
#include "kernels/device.h"
#include "kernels/device_set.h"
#include "worker/data/dataset.h"

namespace lodestar {

class NextTokenModel;

// Told by Forward before it first reads a block's weights, so that weights may still be arriving.
class WeightsGate {
 public:
  virtual ~WeightsGate() = default;
  // Blocks until the block's weights are in place; may be asked again. Errors end the step.
  virtual absl::Status WaitForBlock(int block) = 0;
  // The same of `parts` of the block, in order, where forward reads no more of it yet: before it
  // does, WaitForBlock() comes. Who has blocks in one piece waits for all of it.
  virtual absl::Status WaitForParts(int block, absl::Span<const ElementRange> /*parts*/) {
    return WaitForBlock(block);
  }
};

// Told by Backward when a block's gradient is final, in the order of production (last block first).
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Comes before the first block, when forward and loss have been queued.
  virtual void BackwardBegins() {}
  virtual absl::Status BlockReady(int block) = 0;
  // The gradient of `parts` of the block, in order, is final before that of the rest. BlockReady()
  // comes all the same, so that this may be ignored.
  virtual absl::Status PartsReady(int /*block*/, absl::Span<const ElementRange> /*parts*/) {
    return absl::OkStatus();
  }
};

// Sums over samples' predictions (tokens of a gpt, samples of a classifier).
struct BatchResult {
  double loss_sum = 0.0;    // nats
  int64_t num_correct = 0;  // of Evaluate(); a step does not count them
  int64_t num_predictions = 0;
  // Of the batch's samples: they are in no sum, and in no gradient. Below zero: samples of steps
  // before it that were lost as far as those knew are in these sums.
  int64_t num_lost_samples = 0;
  // There is no gradient, and no block was told of: the step counts, and changes nothing.
  bool is_skipped = false;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const Layout& layout() const = 0;
  // Flat vectors in device memory, layout().num_elements() each, f32 (f64 where the device computes
  // in f64).
  virtual Buf parameters() = 0;
  virtual Buf gradients() = 0;
  // Where the device computes in a narrower type: the parameters in that type, which is what
  // forward and backward read; else empty. It follows parameters() block by block where a gate is
  // given. Who changes parameters() otherwise writes these too, or has them refreshed.
  virtual Buf narrow_parameters() { return {}; }
  virtual void RefreshNarrowParameters() {}

  // Gradient of the mean loss over the batch's predictions (HostBatch::mean_over) into gradients(),
  // each block reported as soon as it is final (on the compute stream, which the device may still
  // be working on; the losses have been waited for). Errors: InvalidArgument for a batch that does
  // not fit the model; those of gate, sink and device.
  virtual absl::StatusOr<BatchResult> TrainStep(const HostBatch& batch, WeightsGate* gate,
                                                GradientSink* sink) = 0;
  // Loss only; any number of samples (cut into pieces of max_batch inside). gate and sink may be
  // null above and here.
  virtual absl::StatusOr<BatchResult> Evaluate(const HostBatch& batch, WeightsGate* gate) = 0;
  // Samples that pass through the network together: Evaluate() with as many is one pass.
  virtual int64_t samples_per_pass() const { return std::numeric_limits<int64_t>::max(); }

  // The same model seen as one that continues text; null for architectures that do not.
  virtual NextTokenModel* next_token_model() { return nullptr; }
};

// Which activations of a gpt backward computes again instead of keeping them. The gradients are the
// same: to the bit on the CPU, up to roundings where activations are stored in a narrow type.
enum class Recompute : uint8_t {
  kNone,
  kGelu,   // the outputs of the GELUs: up to a quarter less memory, a pass over memory more
  kBlock,  // everything but the inputs of the layers: a third more arithmetic
};

// As --recompute of a worker: "none", "gelu", "block".
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
  // Samples per forward/backward; a larger batch is cut into micro-batches whose gradients are
  // accumulated.
  int64_t max_batch = 1;
  Recompute recompute = Recompute::kNone;
  // What dropout drops is a function of this and of the place of a sample (HostBatch).
  uint64_t seed = 1;
  // That of the job, if it is BuildEarlierLayout(spec); none: BuildLayout(spec).
  std::optional<Layout> layout = {};
};

// Allocates both arenas on `device`, which must outlive the model.
// Errors: those of BuildLayout(); InvalidArgument for max_batch below 1; ResourceExhausted naming
// bytes asked for and free, and the flags to change.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config, Device* device);
// On all of them, which outlive the model; config.max_batch is that of each.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config,
                                                 const DeviceSet& devices);

}  // namespace lodestar
