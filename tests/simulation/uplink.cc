// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/uplink.h"

#include <algorithm>
#include <utility>

#include "common/runtime/status_macros.h"
#include "worker/trainer/grant_samples.h"

namespace lodestar::simulation {

SimulatedUplink::SimulatedUplink(ClusterContext* upstream, SimulatedWorker::Config config,
                                 Process* process, Audit* audit)
    : upstream_(upstream),
      process_(process),
      leave_timeout_(config.leave_timeout),
      worker_(upstream, std::move(config),
              {.process = process, .computing = this, .on_exit = [this] { OnExit(); }}),
      site_(audit, process->name()) {}

void SimulatedUplink::Start(site::Site* site, BlockingCode* code, std::function<void()> look) {
  site_.Begin(site, std::move(look));
  code_ = code;
  is_stopping_ = false;
  is_leaving_ = false;
  left_ = nullptr;
  steps_.reset();
  workload_ = std::make_unique<site::SiteWorkload>(
      upstream_->coordinator.job,
      site::SiteWorkload::Deps{.site = &site_,
                               .is_stopping = [this] { return is_stopping_; },
                               .request_stop = [this] { RequestStop(); }});
  worker_.Start();
}

void SimulatedUplink::End() {
  site_.End();
  code_ = nullptr;
  // Does what the destructor of SiteUplink does.
  is_leaving_ = true;
  is_stopping_ = true;
}

std::string SimulatedUplink::Standing() {
  return worker_.has_exited() ? "" : worker_.lifecycle().Standing();
}

void SimulatedUplink::Leave(std::function<void()> left) {
  left_ = std::move(left);
  if (worker_.has_exited()) return process_->After(absl::ZeroDuration(), std::move(left_));
  is_leaving_ = true;
  RequestStop({.grace = leave_timeout_});
}

void SimulatedUplink::RequestStop(const life::StopRequest& request) {
  is_stopping_ = true;
  if (code_ != nullptr) worker_.RequestStop(request);
}

void SimulatedUplink::OnExit() {
  if (!is_leaving_) site_.OnUpstreamEnd(worker_.exit_status());
  if (left_ != nullptr) process_->After(absl::ZeroDuration(), std::move(left_));
}

template <typename Result>
void SimulatedUplink::Run(std::function<Result()> code, std::function<void(const Result&)> done) {
  code_->Run([this, code = std::move(code), done = std::move(done)] {
    Result result = code();
    process_->After(absl::ZeroDuration(), [done, result = std::move(result)] { done(result); });
  });
}

void SimulatedUplink::Prepare(const messages::Registration& registration,
                              std::function<void(const absl::Status&)> done) {
  Run<absl::Status>([this, registration] { return PrepareWorkload(registration); },
                    std::move(done));
}

// Does what Worker::Prepare() does.
absl::Status SimulatedUplink::PrepareWorkload(const messages::Registration& registration) {
  registration_ = registration;
  workload_->OnRegistered(registration);
  if (!workload_->Serves(registration)) {
    steps_.reset();
    RETURN_IF_ERROR(workload_->Prepare(registration, /*devices=*/{}, [this](int64_t) {
      return worker_.lifecycle().is_stopping();
    }));
  }
  if (steps_ == nullptr) {
    deps_ = {.model = workload_->model(),
             .dataset = workload_->dataset(),
             .clock = code_,
             .model_has_optimizer = workload_->has_optimizer(),
             .on_step = [this](const trainer::RoundStep& step) { workload_->OnStep(step); },
             .stop_requested = [this] { return worker_.lifecycle().is_stopping(); },
             .time_left = [this] { return worker_.lifecycle().time_left(process_->world().Now()); },
             .on_activity = nullptr};
    timeline_ = std::make_unique<trainer::DeviceTimeline>(deps_.device, deps_.trace);
    ASSIGN_OR_RETURN(steps_, trainer::LocalSteps::Create(registration.job, deps_, timeline_.get()));
  }
  order_.emplace(registration.job.seed, workload_->dataset()->num_train_samples());
  return absl::OkStatus();
}

messages::DatasetInfo SimulatedUplink::data() const { return workload_->data_info(); }

void SimulatedUplink::CarryOut(const messages::Grant& grant, std::vector<float> weights,
                               std::function<void(const absl::StatusOr<Window>&)> done) {
  Run<absl::StatusOr<Window>>(
      [this, grant, weights = std::move(weights)] {
        site_.BeginWindow(grant, weights);
        absl::StatusOr<Window> window = CarryOutGrant(grant, weights);
        if (window.ok()) site_.EndWindow(window->report, window->end);
        return window;
      },
      std::move(done));
}

absl::StatusOr<Computing::Window> SimulatedUplink::CarryOutGrant(
    const messages::Grant& grant, const std::vector<float>& weights) {
  RETURN_IF_ERROR(trainer::CheckGrant(grant, registration_.job, *workload_->dataset()));
  const kernels::Buf parameters = workload_->model()->parameters();
  auto* const data = static_cast<float*>(parameters.data);
  std::copy(weights.begin(), weights.end(), data);
  workload_->OnGrant(grant);
  Window window;
  window.start = weights;
  window.report.round = grant.round;
  RETURN_IF_ERROR(Evaluate(grant, &window.report));
  if (grant.kind == messages::Grant::Kind::kEvaluate) return window;
  RETURN_IF_ERROR(Train(grant, &window.report));
  RETURN_IF_ERROR(workload_->OnStepsMade());
  RETURN_IF_ERROR(steps_->Check(grant.round));
  window.end.assign(data, data + parameters.num_elements);
  return window;
}

// Stands for RoundRunner::EvaluateHeldout(), which reads many samples at once.
absl::Status SimulatedUplink::Evaluate(const messages::Grant& grant,
                                       messages::RoundReport* report) {
  if (grant.num_heldout_samples == 0) return absl::OkStatus();
  deps_.on_step({.round = grant.round, .server_incarnation = registration_.server_incarnation});
  ASSIGN_OR_RETURN(const model::BatchResult result,
                   workload_->model()->Evaluate(data::HostBatch(), /*gate=*/nullptr));
  report->heldout_loss_sum = result.loss_sum;
  report->heldout_correct = result.num_correct;
  report->heldout_predictions = result.num_predictions;
  return absl::OkStatus();
}

// Does what LocalSgdRounds::RunLocalSteps() does.
absl::Status SimulatedUplink::Train(const messages::Grant& grant, messages::RoundReport* report) {
  steps_->Begin(registration_.server_incarnation, grant.round);
  for (int step = 0; step < grant.local_steps; ++step) {
    if (worker_.lifecycle().is_life_over()) {
      return absl::AbortedError("this life ended while it computed");
    }
    if (step > 0 && steps_->window_end().IsDue(grant, step)) break;
    const absl::Status taken = steps_->Take({.grant = &grant, .order = &*order_}, step, report);
    if (absl::IsCancelled(taken) && step > 0 && deps_.stop_requested()) break;
    RETURN_IF_ERROR(taken);
  }
  return absl::OkStatus();
}

}  // namespace lodestar::simulation
