// SPDX-License-Identifier: Apache-2.0

// BatchedModel is the part that all models share. It checks a batch, divides it into micro-batches,
// copies data to and from the device, and computes the loss. A derived model adds the network from
// inputs() to logits(), and its backward.
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

// The sizes of one sample. If token_limit > 0, the inputs are tokens (i32). Otherwise they are
// features (floating point).
struct SampleShape {
  int64_t inputs = 0;  // Inputs per sample.
  // Predictions per sample. Each has one target.
  int64_t predictions = 1;
  int64_t classes = 0;
  int64_t token_limit = 0;
  // Number of elements from one row of logits to the next. 0 means `classes`.
  int64_t logits_stride = 0;
  // True means that two steps with the same weights and the same batch may give different results.
  bool has_dropout = false;
};

class BatchedModel : public Model {
 public:
  const params::Layout& layout() const override { return parameter_arena_->layout(); }
  kernels::Buf parameters() override { return parameter_arena_->values(); }
  kernels::Buf gradients() override { return parameter_arena_->gradients(); }
  kernels::Buf narrow_parameters() override { return parameter_arena_->narrow_parameters(); }
  void RefreshNarrowParameters() override;
  absl::StatusOr<BatchResult> TrainStep(const data::HostBatch& batch, WeightsGate* gate,
                                        GradientSink* sink) override;
  absl::StatusOr<BatchResult> Evaluate(const data::HostBatch& batch, WeightsGate* gate) override;
  int64_t samples_per_pass() const override { return max_batch_; }

  // Must be called once, before all other methods. Errors: ResourceExhausted.
  absl::Status AllocateActivations();
  int64_t activation_bytes() const { return activation_arena_.num_bytes(); }
  // Returns the size of the pinned host memory. It is 0 if the device's memory is host memory.
  int64_t pinned_bytes() const;
  // Returns the size of a HostBatch of one micro-batch.
  int64_t batch_bytes() const { return BatchBytes(); }
  // Returns how many additional elements the parameter vector needs behind its last parameter.
  static int64_t PaddingElements(const ModelConfig&, kernels::Device*) { return 0; }

 protected:
  // One pass of a micro-batch through the network.
  struct Pass {
    int64_t samples = 0;
    // Place of the pass's first sample in the order of all samples of the job.
    int64_t first_position = 0;
    bool is_training = false;
  };

  // Constructors of derived models must plan their buffers in activation_arena().
  BatchedModel(const ModelConfig& config, const SampleShape& sample,
               std::unique_ptr<ParameterArena> parameter_arena, kernels::Device* device);

  // Called once per step or evaluation, with the whole batch, before the first Forward().
  virtual void OnBatch(const data::HostBatch&) {}
  // Computes logits() from inputs(). `gate` may be null. Forward() must wait for each block before
  // it reads the block:
  // - with WaitForBlock() for the whole block, or
  // - with WaitForParts() for the parts that it reads first, and later with WaitForRest() for all
  //   other parts.
  virtual absl::Status Forward(const Pass& pass, WeightsGate* gate) = 0;
  // Computes gradients() from the gradient in logits(). `weights` says whether Backward()
  // overwrites gradients() or adds to them. `sink` may be null. Backward() must call ReportBlock()
  // once for each block, last block first.
  virtual absl::Status Backward(const Pass& pass, kernels::Accumulate weights,
                                GradientSink* sink) = 0;

  kernels::Device* device() const { return device_; }
  kernels::DType dtype() const { return device_->capabilities().compute; }
  int64_t max_batch() const { return max_batch_; }
  const ParameterArena& parameter_arena() const { return *parameter_arena_; }
  ActivationArena* activation_arena() { return &activation_arena_; }
  kernels::Buf inputs() const { return inputs_; }
  kernels::Buf logits() const { return logits_; }

  // Waits until the block's weights have arrived, unless `gate` is null. Then converts them into
  // the dtype that forward reads.
  absl::Status WaitForBlock(WeightsGate* gate, int block);
  // WaitForParts() waits for and converts some parts of a block. WaitForRest() does this for all
  // other parts of the block.
  absl::Status WaitForParts(WeightsGate* gate, int block,
                            absl::Span<const params::ElementRange> parts);
  absl::Status WaitForRest(WeightsGate* gate, int block,
                           absl::Span<const params::ElementRange> rest);
  static absl::Status ReportBlock(GradientSink* sink, int block);
  static absl::Status ReportParts(GradientSink* sink, int block,
                                  absl::Span<const params::ElementRange> parts);

 private:
  void PlanBatchBuffers();
  void RefreshNarrowParameters(absl::Span<const params::ElementRange> ranges);
  // ResultBytes() returns the size of host_results_. BatchBytes() returns the size of the samples
  // of one micro-batch in host memory.
  int64_t ResultBytes() const;
  int64_t BatchBytes() const;
  absl::Status CheckBatch(const data::HostBatch& batch) const;
  absl::Status CheckSizes(const data::HostBatch& batch) const;
  void Upload(const data::HostBatch& batch, int64_t begin, int64_t samples);
  // Queues a copy of `count` elements from host memory to the device. If there is pinned memory,
  // the elements first go there, at byte offset `pinned_place`. A copy from other memory would wait
  // for the device.
  void CopyToDevice(kernels::Buf to, const void* from, int64_t count, int64_t pinned_place);
  // Queues forward, loss and backward of one micro-batch. Returns the event after the copy of the
  // losses to the host.
  absl::StatusOr<kernels::EventId> TrainMicroBatch(const Pass& pass, double scale,
                                                   kernels::Accumulate weights, WeightsGate* gate,
                                                   GradientSink* sink);
  // Does the same as TrainMicroBatch(), but runs forward, loss and backward as one graph of the
  // device. Waits for the gate before the graph runs, and calls the sink afterwards.
  absl::StatusOr<kernels::EventId> TrainAsGraph(const Pass& pass, double scale,
                                                kernels::Accumulate weights, WeightsGate* gate,
                                                GradientSink* sink);
  // Computes the loss. If `scale` is not 0, also sets logits() to the gradient of the loss. In this
  // and the next two functions, `correct` is correct_. If it is empty, correct predictions are not
  // counted.
  void ComputeLoss(int64_t samples, kernels::Buf correct, double scale);
  kernels::EventId CopyLossesToHost(int64_t samples, kernels::Buf correct);
  // Blocks until `losses_copied` has happened. Adds the losses of `samples` samples to *result.
  absl::Status ReadLosses(kernels::EventId losses_copied, int64_t samples, kernels::Buf correct,
                          BatchResult* result);

  const std::string name_;
  const SampleShape sample_;
  const int64_t max_batch_;
  kernels::Device* const device_;
  const std::unique_ptr<ParameterArena> parameter_arena_;
  ActivationArena activation_arena_;
  // The features in f32, before conversion to the compute dtype. Empty if the device computes in
  // f32.
  kernels::Buf staged_features_;
  kernels::Buf inputs_;
  kernels::Buf targets_;
  kernels::Buf logits_;
  kernels::Buf losses_;
  kernels::Buf correct_;
  // The results of one micro-batch: [losses | correct].
  DeviceMemory host_results_;
  // [inputs | targets] of one micro-batch, as in a HostBatch. Empty if no memory is pinned. It may
  // be overwritten once the losses of the last micro-batch were read, because the device copies a
  // micro-batch before it computes the losses.
  DeviceMemory pinned_batch_;
  // Null if steps are not recorded as graphs.
  std::unique_ptr<StepGraphs> graphs_;
};

}  // namespace lodestar::model
