// SPDX-License-Identifier: Apache-2.0

// ReplicatedModel is a model on several devices, each of which computes a part of every batch. The
// first device holds the weights and, after a step, the gradient of the whole batch. The other
// devices get the weights from the first device and send their gradients to it, block by block,
// while they compute.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device_group.h"
#include "kernels/device_set.h"
#include "worker/model/model.h"

namespace lodestar::model {

// Uses one thread per device. The caller's thread serves the first device. The gradients are the
// same as on one device that computes the same parts of the batch as micro-batches. The bits are
// the same too, if the group sums in the order of its members and each device has one micro-batch.
class ReplicatedModel final : public Model {
 public:
  // Requires: there are at least two `replicas`, they have the same config, and replica i is on
  // device i. `devices` must outlive the model.
  ReplicatedModel(std::vector<std::unique_ptr<Model>> replicas, const kernels::DeviceSet* devices);

  const params::Layout& layout() const override { return first().layout(); }
  kernels::Buf parameters() override { return first().parameters(); }
  kernels::Buf gradients() override { return first().gradients(); }
  kernels::Buf narrow_parameters() override { return first().narrow_parameters(); }
  void RefreshNarrowParameters() override { first().RefreshNarrowParameters(); }
  absl::StatusOr<BatchResult> TrainStep(const data::HostBatch& batch, WeightsGate* gate,
                                        GradientSink* sink) override;
  absl::StatusOr<BatchResult> Evaluate(const data::HostBatch& batch, WeightsGate* gate) override;
  int64_t samples_per_pass() const override {
    return static_cast<int64_t>(replicas_.size()) * first().samples_per_pass();
  }
  NextTokenModel* next_token_model() override { return first().next_token_model(); }

 private:
  using Step = std::function<absl::StatusOr<BatchResult>(int member, const data::HostBatch& part)>;

  Model& first() const { return *replicas_.front(); }
  // Divides `batch` into one part per device, and calls `step` with each part. Errors: the first
  // failure.
  absl::StatusOr<BatchResult> RunOnAll(const data::HostBatch& batch, const Step& step);
  // Divides the batch into contiguous parts whose sizes differ by at most one sample. The last
  // parts may be empty.
  void Split(const data::HostBatch& batch);
  // Runs the training step of the first device. `gate` is the gate that the caller has given to
  // TrainStep().
  absl::StatusOr<BatchResult> TrainFirst(const data::HostBatch& part, WeightsGate* gate,
                                         GradientSink* sink);
  // Runs the training step of another device. `weights_are_there` means that all weights have
  // arrived before the step. The device then starts to receive them before it computes.
  absl::StatusOr<BatchResult> TrainOther(int member, const data::HostBatch& part,
                                         bool weights_are_there);
  absl::StatusOr<BatchResult> EvaluateFirst(const data::HostBatch& part, WeightsGate* gate);
  absl::StatusOr<BatchResult> EvaluateOther(int member, const data::HostBatch& part,
                                            bool weights_are_there);

  const std::vector<std::unique_ptr<Model>> replicas_;
  const kernels::DeviceSet* const devices_;
  kernels::DeviceGroup* const group_;
  std::vector<data::HostBatch> parts_;
};

}  // namespace lodestar::model
