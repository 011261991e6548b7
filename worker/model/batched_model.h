// BatchedModel is what all models share: checks of a batch, cutting it into micro-batches, copies
// to and from the device, and the loss. A derived model adds the network between inputs() and
// logits(), and its backward.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "worker/model/activation_arena.h"
#include "worker/model/device_memory.h"
#include "worker/model/model.h"
#include "worker/model/parameter_arena.h"
#include "worker/model/step_graphs.h"

namespace lodestar::model {

// The sizes of one sample. If token_limit > 0, inputs are tokens (i32), else features (floating).
struct SampleShape {
  int64_t inputs = 0;       // per sample
  int64_t predictions = 1;  // per sample; each has one target
  int64_t classes = 0;
  int64_t token_limit = 0;
  // The number of elements from a row of logits to the next. 0 means `classes`.
  int64_t logits_stride = 0;
  // True means that training is not the same function of weights and batch in every step.
  bool has_dropout = false;
};

class BatchedModel : public Model {
 public:
  const Layout& layout() const override { return parameter_arena_->layout(); }
  kernels::Buf parameters() override { return parameter_arena_->values(); }
  kernels::Buf gradients() override { return parameter_arena_->gradients(); }
  kernels::Buf narrow_parameters() override { return parameter_arena_->narrow_parameters(); }
  void RefreshNarrowParameters() override;
  absl::StatusOr<BatchResult> TrainStep(const data::HostBatch& batch, WeightsGate* gate,
                                        GradientSink* sink) override;
  absl::StatusOr<BatchResult> Evaluate(const data::HostBatch& batch, WeightsGate* gate) override;
  int64_t samples_per_pass() const override { return max_batch_; }

  // Call once, before anything else. Errors: ResourceExhausted.
  absl::Status AllocateActivations();
  int64_t activation_bytes() const { return activation_arena_.num_bytes(); }
  // Returns the size of the pinned host memory. It is 0 if the device's memory is the host's.
  int64_t pinned_bytes() const;
  // Returns the size of a HostBatch with as many samples as a micro-batch.
  int64_t batch_bytes() const { return BatchBytes(); }
  // Returns how many elements a model needs behind its parameters.
  static int64_t PaddingElements(const ModelConfig&, kernels::Device*) { return 0; }

 protected:
  // One pass of a micro-batch through the network.
  struct Pass {
    int64_t samples = 0;
    int64_t first_position = 0;  // of its first sample, as in HostBatch
    bool is_training = false;
  };

  // The constructors of derived models plan their buffers in activation_arena().
  BatchedModel(const ModelConfig& config, const SampleShape& sample,
               std::unique_ptr<ParameterArena> parameter_arena, kernels::Device* device);

  // Is called with all samples of a step or an evaluation, before their first Forward().
  virtual void OnBatch(const data::HostBatch&) {}
  // Computes logits() from inputs(). `gate` may be null. It is asked for each block once, before
  // the first read of the block. It may also be asked for parts of a block before those are read,
  // and for the block before the rest is read.
  virtual absl::Status Forward(const Pass& pass, WeightsGate* gate) = 0;
  // Computes gradients() from the gradient in logits(). They are set or added to as `weights` says.
  // `sink` may be null. It is told of each block once, last block first.
  virtual absl::Status Backward(const Pass& pass, kernels::Accumulate weights,
                                GradientSink* sink) = 0;

  kernels::Device* device() const { return device_; }
  kernels::DType dtype() const { return device_->capabilities().compute; }
  int64_t max_batch() const { return max_batch_; }
  const ParameterArena& parameter_arena() const { return *parameter_arena_; }
  ActivationArena* activation_arena() { return &activation_arena_; }
  kernels::Buf inputs() const { return inputs_; }
  kernels::Buf logits() const { return logits_; }

  // If there is a gate, waits until the block's weights have arrived, and brings them into the type
  // that forward reads.
  absl::Status WaitForBlock(WeightsGate* gate, int block);
  // WaitForParts() does the same for parts of the block. WaitForRest() does it for the other parts,
  // once the gate has been asked for some.
  absl::Status WaitForParts(WeightsGate* gate, int block, absl::Span<const ElementRange> parts);
  absl::Status WaitForRest(WeightsGate* gate, int block, absl::Span<const ElementRange> rest);
  static absl::Status ReportBlock(GradientSink* sink, int block);
  static absl::Status ReportParts(GradientSink* sink, int block,
                                  absl::Span<const ElementRange> parts);

 private:
  void PlanBatchBuffers();
  void RefreshNarrowParameters(absl::Span<const ElementRange> ranges);
  // Return the size of the results and of the batch of one micro-batch, on the host.
  int64_t ResultBytes() const;
  int64_t BatchBytes() const;
  absl::Status CheckBatch(const data::HostBatch& batch) const;
  absl::Status CheckSizes(const data::HostBatch& batch) const;
  void Upload(const data::HostBatch& batch, int64_t begin, int64_t samples);
  // Queues the copy of `count` elements of a batch. Meanwhile they lie at `pinned_place` of the
  // pinned memory. A copy from memory that is not pinned would wait for the device and pass through
  // a buffer of the driver's.
  void CopyToDevice(kernels::Buf to, const void* from, int64_t count, int64_t pinned_place);
  // Runs forward, loss and backward of one micro-batch. Returns when the copy of the losses is
  // under way.
  absl::StatusOr<kernels::EventId> TrainMicroBatch(const Pass& pass, double scale,
                                                   kernels::Accumulate weights, WeightsGate* gate,
                                                   GradientSink* sink);
  // Does the same as one graph. Waits for the gate before the graph, and tells the sink after it.
  absl::StatusOr<kernels::EventId> TrainAsGraph(const Pass& pass, double scale,
                                                kernels::Accumulate weights, WeightsGate* gate,
                                                GradientSink* sink);
  // Computes the loss and, if `scale` is not 0, its gradient, which goes into logits(). Here and
  // below `correct` is correct_, or empty if it is not wanted which predictions are right.
  void ComputeLoss(int64_t samples, kernels::Buf correct, double scale);
  kernels::EventId CopyLossesToHost(int64_t samples, kernels::Buf correct);
  // Blocks until `losses_copied`; adds the losses of `samples` samples to *result.
  absl::Status ReadLosses(kernels::EventId losses_copied, int64_t samples, kernels::Buf correct,
                          BatchResult* result);

  const std::string name_;
  const SampleShape sample_;
  const int64_t max_batch_;
  kernels::Device* const device_;
  const std::unique_ptr<ParameterArena> parameter_arena_;
  ActivationArena activation_arena_;
  kernels::Buf staged_features_;  // f32; empty unless the device computes in another dtype
  kernels::Buf inputs_;
  kernels::Buf targets_;
  kernels::Buf logits_;
  kernels::Buf losses_;
  kernels::Buf correct_;
  DeviceMemory host_results_;  // [losses | correct] of one micro-batch
  // [inputs | targets] of one micro-batch, as in a HostBatch; empty if nothing is pinned. It is
  // written again once the losses of the micro-batch before have been read: these are computed
  // after its copy.
  DeviceMemory pinned_batch_;
  std::unique_ptr<StepGraphs> graphs_;  // null if steps are not recorded
};

}  // namespace lodestar::model
