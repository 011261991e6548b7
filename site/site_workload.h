// The workload of a worker that is a site: its steps are those of the site's workers, and its
// weights those of the site's server, which are read once the steps of a round are made.
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
    site::Site* site = nullptr;  // outlives the workload
    // Whether the worker was told to stop.
    std::function<bool()> is_stopping;
    // Tells it to: the site takes no orders any more.
    std::function<void()> request_stop;
  };

  // `began`: the job of the servers upstream that the site has begun with.
  SiteWorkload(JobSpec began, Deps deps) : began_(std::move(began)), deps_(std::move(deps)) {}

  // Waits until the site has as many workers as a round of it needs: others would wait for them.
  void OnRegistered(const Registration& registration) override;
  bool Serves(const Registration& registration) const override;
  // The data of the site's workers is the site's.
  absl::Status Prepare(const Registration& registration, const kernels::DeviceSet& devices,
                       data::StopRequested stop_requested) override;
  model::Model* model() override { return model_.get(); }
  const data::Dataset* dataset() const override { return dataset_.get(); }
  bool owns_partition() const override { return false; }
  bool has_optimizer() const override { return true; }
  void OnGrant(const Grant& grant) override;
  void OnStep(const trainer::RoundStep& step) override;
  absl::Status OnStepsMade() override;

 private:
  class SiteModel;

  // If several steps make an order, the last one carries it out.
  absl::StatusOr<model::BatchResult> Train();
  // All held-out samples of the grant, with its first call.
  absl::StatusOr<model::BatchResult> Evaluate();
  // The site has the weights in parameters_, if they were changed here.
  absl::Status PutWeightsOnce();
  absl::StatusOr<SiteOutcome> CarryOut(const SiteOrder& order);

  const JobSpec began_;
  const Deps deps_;
  int steps_of_order_ = 1;
  std::vector<float> parameters_;
  std::vector<float> gradients_;         // between rounds: what is contributed
  std::unique_ptr<model::Model> model_;  // null: not prepared
  std::unique_ptr<data::Dataset> dataset_;

  // The grant whose held-out samples are evaluated next.
  Grant grant_;
  bool has_evaluated_ = false;

  bool defers_contributions_ = false;  // the job
  // The step that is made, and its part of the order.
  trainer::RoundStep step_;
  SiteOrder order_;  // that the step is part of
  int64_t trained_samples_ = 0;
  bool has_put_weights_ = false;  // parameters_ are the site's weights, or older
};

}  // namespace lodestar::site
