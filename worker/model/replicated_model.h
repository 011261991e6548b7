// A model on several devices: each computes a part of every batch. The first has the weights and,
// after a step, the gradient of the whole batch; the others get weights from it and give it their
// gradients block by block, while they compute.
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

// One thread per device computes, that of the caller for the first. Gradients are those of one
// device that accumulates as many micro-batches as there are devices, with the same bits where the
// group sums in the order of its members and each has one micro-batch.
class ReplicatedModel final : public Model {
 public:
  // `replicas` are of one config, each on the device with its index, at least two. `devices`
  // outlives the model.
  ReplicatedModel(std::vector<std::unique_ptr<Model>> replicas, const kernels::DeviceSet* devices);

  const Layout& layout() const override { return first().layout(); }
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
  // Cuts `batch` into a part per device and takes the step with each. Errors: the first failure.
  absl::StatusOr<BatchResult> RunOnAll(const data::HostBatch& batch, const Step& step);
  // The contiguous parts of the batch differ by at most one sample; the last ones may be empty.
  void Split(const data::HostBatch& batch);
  // A step of the first device, whose weights `gate` waits for.
  absl::StatusOr<BatchResult> TrainFirst(const data::HostBatch& part, WeightsGate* gate,
                                         GradientSink* sink);
  // `weights_are_there`: all of them may travel before the step.
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
