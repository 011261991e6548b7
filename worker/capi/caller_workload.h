// SPDX-License-Identifier: Apache-2.0

// CallerWorkload is the workload of a program that computes steps itself. The program has its own
// layout, and keeps parameters and gradients in main memory. Its samples are known only by their
// numbers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/proposed_settings.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "worker/capi/step_handoff.h"
#include "worker/trainer/round_runner.h"
#include "worker/trainer/step_forecast.h"
#include "worker/workload.h"

namespace lodestar::capi {

// The fp32 vectors of one model. Each has Layout::num_elements() elements, which begin as zeros.
// During a step only the program uses the vectors, and between steps only the worker.
struct CallerVectors {
  std::vector<float> parameters;
  std::vector<float> gradients;
  // State of the servers' optimizer. A new job begins with it. The worker drops it once weights
  // have come.
  trainer::InitialState initial_state;
};

class CallerWorkload final : public worker::Workload {
 public:
  // All pointers, and everything that the functions use, must outlive the workload. The functions
  // are called on the worker's thread.
  struct Deps {
    // The program's description of its samples. Set once await_vectors() has returned OK.
    const std::optional<messages::DatasetInfo>* data = nullptr;
    // Says whether the samples of an epoch are shuffled. Set with `data`.
    const bool* is_shuffled = nullptr;
    CallerVectors* vectors = nullptr;
    StepHandoff* handoff = nullptr;
    // Called after each registration.
    std::function<void(const messages::Registration&)> on_registered;
    // Called when new weights are in the vector of parameters, with the number of updates that each
    // bucket has had.
    std::function<void(const std::vector<Version>&)> on_weights;
    // Called after on_weights if these are the last weights of the job.
    std::function<void()> on_last_weights;
    std::function<void(const job::JobLoss&)> on_loss;
    // May be called on the thread that sends heartbeats.
    std::function<void(const messages::LiveWorkers&)> on_live_workers;
    std::function<messages::OfferedLayout()> offered_layout;
    // Blocks until the program has allocated the vectors, has written its initial weights, and has
    // described its data. Returns the layout of the vectors, which never changes. Errors: those of
    // the allocation; Cancelled (if the worker is told to stop).
    std::function<absl::StatusOr<const params::Layout*>()> await_vectors;
  };

  CallerWorkload(job::ProposedSettings proposed, Deps deps);

  std::optional<messages::OfferedLayout> offered_layout() const override {
    return deps_.offered_layout();
  }
  job::ProposedSettings proposed_settings() const override { return proposed_; }
  bool Serves(const messages::Registration& registration) const override;
  absl::Status Prepare(const messages::Registration& registration,
                       const kernels::DeviceSet& devices,
                       data::StopRequested stop_requested) override;
  model::Model* model() override { return model_.get(); }
  const data::Dataset* dataset() const override { return dataset_.get(); }
  bool owns_partition() const override { return (*deps_.data)->own_partition; }
  bool has_optimizer() const override { return true; }
  bool wants_last_weights() const override { return true; }
  void OnRegistered(const messages::Registration& registration) override;
  bool AsksWithoutSamples() override {
    has_asked_without_samples_ = deps_.handoff->keeps_samples();
    return has_asked_without_samples_;
  }
  void OnGrant(const messages::Grant& grant) override {
    if (!has_asked_without_samples_) forecast_.OnGrant(grant);
    grant_ = grant;
  }
  void OnLoss(const job::JobLoss& loss) override { deps_.on_loss(loss); }
  void OnLiveWorkers(const messages::LiveWorkers& workers) override {
    deps_.on_live_workers(workers);
  }
  void OnStep(const trainer::RoundStep& step) override { step_ = step; }
  void SetExtendGrant(
      std::function<absl::StatusOr<messages::Grant>(const messages::Grant&)> extend) override {
    extend_grant_ = std::move(extend);
  }
  std::function<void(const std::vector<Version>&)> on_weights() override;
  absl::Status CheckMaySupplyWeights(const job::JobSpec& job) const override;
  const trainer::InitialState* initial_state() const override {
    return &deps_.vectors->initial_state;
  }
  void OnLastWeights() override { deps_.on_last_weights(); }
  void Complete(messages::RoundReport* report) override {
    report->metrics = deps_.handoff->MetricsOfRound();
    // Not of an evaluation, which is no step of training.
    if (report->num_samples == 0) return;
    if (has_asked_without_samples_) report->num_samples = 0;
    report->num_samples += deps_.handoff->num_extra_samples();
  }

 private:
  // Requires: dataset_ is set.
  void ExpectOrderOf(const job::JobSpec& job);
  // Gets more samples for the grant that is carried out.
  absl::StatusOr<ExtraSamples> GetMore();

  const job::ProposedSettings proposed_;
  const Deps deps_;
  std::function<absl::StatusOr<messages::Grant>(const messages::Grant&)> extend_grant_;
  messages::Grant grant_;                   // the last grant that was carried out
  bool has_asked_without_samples_ = false;  // for the last grant
  trainer::RoundStep step_;                 // the step that the model trains next
  trainer::StepForecast forecast_;
  messages::WorkerLife life_;               // the life that forecast_ is about
  bool has_updates_ = false;                // true if the parameters have had updates
  std::unique_ptr<model::Model> model_;     // null until Prepare()
  std::unique_ptr<data::Dataset> dataset_;  // null until Prepare()
};

}  // namespace lodestar::capi
