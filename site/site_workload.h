// SPDX-License-Identifier: Apache-2.0

// SiteWorkload is the workload of the worker that a site is for its servers upstream. Its steps are
// made by the site's own workers. When the steps of a round are done, it reads the weights from the
// site's server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"
#include "common/messages/cluster_messages.h"
#include "common/params/layout.h"
#include "server/site/site.h"
#include "worker/workload.h"

namespace lodestar::site {

class SiteWorkload final : public worker::Workload {
 public:
  struct Deps {
    site::Site* site = nullptr;  // must outlive the workload
    // Returns true if the worker was told to stop.
    std::function<bool()> is_stopping;
    // Tells the worker to stop, because the site takes no more orders.
    std::function<void()> request_stop;
  };

  // `began` is the job that the servers upstream had when the site started.
  SiteWorkload(job::JobSpec began, Deps deps) : began_(std::move(began)), deps_(std::move(deps)) {}

  // Waits until the site has enough workers for a round. Before that, a grant from upstream would
  // make the other workers upstream wait.
  void OnRegistered(const messages::Registration& registration) override;
  bool Serves(const messages::Registration& registration) const override;
  // Uses the data of the site's workers as the data of the site.
  absl::Status Prepare(const messages::Registration& registration,
                       const kernels::DeviceSet& devices,
                       data::StopRequested stop_requested) override;
  model::Model* model() override { return model_.get(); }
  const data::Dataset* dataset() const override { return dataset_.get(); }
  bool owns_partition() const override { return false; }
  bool has_optimizer() const override { return true; }
  void OnGrant(const messages::Grant& grant) override;
  void OnStep(const trainer::RoundStep& step) override;
  absl::Status OnStepsMade() override;

 private:
  class SiteModel;

  // Adds the step at hand to the order. When the order has all its steps, carries the order out.
  absl::StatusOr<model::BatchResult> Train();
  // The first call evaluates all held-out samples of the grant. Later calls do nothing.
  absl::StatusOr<model::BatchResult> Evaluate();
  // Sends parameters_ to the site, unless the site already has these or newer weights.
  absl::Status PutWeightsOnce();
  absl::StatusOr<rounds::SiteOutcome> CarryOut(const rounds::SiteOrder& order);

  const job::JobSpec began_;
  const Deps deps_;
  int steps_of_order_ = 1;
  std::vector<float> parameters_;
  std::vector<float> gradients_;         // contribution, between rounds
  std::unique_ptr<model::Model> model_;  // null means not prepared
  std::unique_ptr<data::Dataset> dataset_;

  // The grant whose held-out samples Evaluate() evaluates.
  messages::Grant grant_;
  bool has_evaluated_ = false;

  bool defers_contributions_ = false;  // DefersContributions() of the job
  // The current step.
  trainer::RoundStep step_;
  rounds::SiteOrder order_;  // the order that the current step is part of
  int64_t trained_samples_ = 0;
  bool has_put_weights_ = false;  // true: the site has parameters_, or newer weights
};

}  // namespace lodestar::site
