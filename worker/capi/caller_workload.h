// SPDX-License-Identifier: Apache-2.0

// The workload of a program that computes itself: a layout of its own, parameters and gradients in
// main memory, and samples that it knows by their numbers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/job/proposed_settings.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "worker/capi/step_handoff.h"
#include "worker/trainer/step_forecast.h"
#include "worker/workload.h"

namespace lodestar::capi {

// The vectors of one model: f32, zero at first, Layout::num_elements() each. Between steps they are
// the worker's; during one, its program's.
struct CallerVectors {
  std::vector<float> parameters;
  std::vector<float> gradients;
};

class CallerWorkload final : public worker::Workload {
 public:
  // All outlive the workload, or refer to what does; functions are called on the worker's thread.
  struct Deps {
    // What the program has said of its samples. Set once await_vectors() has returned OK.
    const std::optional<messages::DatasetInfo>* data = nullptr;
    CallerVectors* vectors = nullptr;
    StepHandoff* handoff = nullptr;
    // With each registration.
    std::function<void(const messages::Registration&)> on_registered;
    // The vector of parameters has these: how many updates they have had; none: some buckets have
    // had more than others.
    std::function<void(std::optional<Version>)> on_weights;
    std::function<void(const job::JobLoss&)> on_loss;
    // May be called on the thread of the heartbeats.
    std::function<void(const messages::LiveWorkers&)> on_live_workers;
    std::function<messages::OfferedLayout()> offered_layout;
    // Blocks until the program has the vectors, has written what it begins with, and has said what
    // its data is; returns the layout of the vectors, which stays. Errors: what allocating them has
    // failed with; Cancelled: told to stop.
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
  void OnGrant(const messages::Grant& grant) override { forecast_.OnGrant(grant); }
  void OnLoss(const job::JobLoss& loss) override { deps_.on_loss(loss); }
  void OnLiveWorkers(const messages::LiveWorkers& workers) override {
    deps_.on_live_workers(workers);
  }
  void OnStep(const trainer::RoundStep& step) override { step_ = step; }
  std::function<void(const std::vector<Version>&)> on_weights() override;
  absl::Status CheckMaySupplyWeights(const job::JobSpec& job) const override;
  void Complete(messages::RoundReport* report) override {
    report->metrics = deps_.handoff->MetricsOfRound();
  }

 private:
  // Requires: the data set was made.
  void ExpectOrderOf(const job::JobSpec& job);

  const job::ProposedSettings proposed_;
  const Deps deps_;
  trainer::RoundStep step_;  // that the model trains next
  trainer::StepForecast forecast_;
  messages::WorkerLife life_;               // that forecast_ is of
  bool has_updates_ = false;                // are in the vector of parameters
  std::unique_ptr<model::Model> model_;     // null: not prepared
  std::unique_ptr<data::Dataset> dataset_;  // null: not prepared
};

}  // namespace lodestar::capi
