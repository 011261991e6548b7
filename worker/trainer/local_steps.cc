#include "worker/trainer/local_steps.h"

#include <utility>

#include "common/logging.h"
#include "common/status_macros.h"
#include "worker/trainer/grant_samples.h"
#include "worker/trainer/step_trace.h"

namespace lodestar {

absl::StatusOr<std::unique_ptr<LocalSteps>> LocalSteps::Create(const JobSpec& job,
                                                               const RoundRunnerDeps& deps,
                                                               DeviceTimeline* timeline) {
  auto steps = std::unique_ptr<LocalSteps>(new LocalSteps(deps, timeline));
  if (!deps.model_has_optimizer) {
    ASSIGN_OR_RETURN(steps->inner_optimizer_,
                     InnerOptimizer::Create(job.optimizer, deps.model->layout(), deps.device));
  }
  return steps;
}

void LocalSteps::Begin(uint64_t server_incarnation) {
  if (std::exchange(server_incarnation_, server_incarnation) == server_incarnation) return;
  if (inner_optimizer_ != nullptr) inner_optimizer_->Reset();
}

absl::Status LocalSteps::Take(const Work& work, int step, RoundReport* sums) {
  const absl::Time start = deps_.clock->Now();
  const Grant& grant = *work.grant;
  const SampleSpan samples = SamplesOfStep(grant, step);
  {
    TraceSpan span(deps_.trace, "training", "read data");
    RETURN_IF_ERROR(ReadTrainSpan(*deps_.dataset, *work.order, samples, &batch_));
  }
  deps_.on_step({.round = grant.round,
                 .step = step,
                 .num_steps = grant.local_steps,
                 .samples = samples,
                 .learning_rate = grant.learning_rates[step],
                 .server_incarnation = server_incarnation_});
  ASSIGN_OR_RETURN(const BatchResult result, Step(work, grant.learning_rates[step]));
  sums->loss_sum += result.loss_sum;
  sums->num_predictions += result.num_predictions;
  sums->num_samples += samples.count - result.num_lost_samples;
  window_end_.OnStep(deps_.clock->Now() - start, /*waited=*/work.gate != nullptr);
  return absl::OkStatus();
}

bool LocalSteps::IsLeft(const Grant& grant, int step, const absl::Status& taken) const {
  if (!absl::IsCancelled(taken) || !deps_.stop_requested()) return false;
  WindowEnd::TellCut(grant, step, "who computes has left");
  return true;
}

absl::StatusOr<BatchResult> LocalSteps::Step(const Work& work, double learning_rate) {
  const auto before_change = [&work] {
    return work.before_change ? work.before_change() : absl::OkStatus();
  };
  if (inner_optimizer_ == nullptr) {
    RETURN_IF_ERROR(before_change());
    return TrainOnBatch(work.gate);
  }
  ASSIGN_OR_RETURN(const BatchResult result, TrainOnBatch(work.gate));
  RETURN_IF_ERROR(before_change());
  TraceSpan span(deps_.trace, "training", "inner optimizer");
  RETURN_IF_ERROR(inner_optimizer_->Step(deps_.model->parameters(),
                                         deps_.model->narrow_parameters(), deps_.model->gradients(),
                                         learning_rate, work.clip_norm));
  return result;
}

absl::StatusOr<BatchResult> LocalSteps::TrainOnBatch(WeightsGate* gate) {
  if (deps_.trace == nullptr || !deps_.trace->is_recording()) {
    return deps_.model->TrainStep(batch_, gate, /*sink=*/nullptr);
  }
  RETURN_IF_ERROR(timeline_->Flush());
  StepTrace trace(deps_.trace, timeline_, gate, /*sink=*/nullptr);
  return deps_.model->TrainStep(batch_, &trace, &trace);
}

absl::Status LocalSteps::Check(Round round) {
  if (inner_optimizer_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool is_finite,
                   inner_optimizer_->ResetUnlessFinite(deps_.model->parameters()));
  if (!is_finite) {
    LogWarn(
        "round {}: the local steps have made weights or optimizer state NaN or Inf; that state "
        "begins anew",
        round);
  }
  return absl::OkStatus();
}

}  // namespace lodestar
