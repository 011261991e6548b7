#include "worker/trainer/local_sgd_rounds.h"

#include <utility>

#include "common/logging.h"
#include "common/status_macros.h"
#include "worker/trainer/grant_samples.h"
#include "worker/trainer/step_trace.h"

namespace lodestar {

absl::StatusOr<std::unique_ptr<LocalSgdRounds>> LocalSgdRounds::Create(
    const JobSpec& job, const RoundRunnerDeps& deps) {
  auto rounds = std::unique_ptr<LocalSgdRounds>(new LocalSgdRounds(job, deps));
  const Buf parameters = deps.model->parameters();
  // Between rounds nobody needs the gradient: its vector holds the pseudo-gradient.
  const Buf contribution = rounds->contribution_kind_ == ContributionKind::kWeights
                               ? parameters
                               : deps.model->gradients();
  ASSIGN_OR_RETURN(rounds->exchange_,
                   ExchangeState::Create(job, deps.model->layout(), deps.device, parameters,
                                         contribution, &rounds->timeline_));
  if (!deps.model_has_optimizer) {
    ASSIGN_OR_RETURN(rounds->inner_optimizer_,
                     InnerOptimizer::Create(job.optimizer, deps.model->layout(), deps.device));
  }
  ASSIGN_OR_RETURN(void* memory,
                   deps.device->Allocate(DTypeBytes(parameters.dtype) * parameters.num_elements));
  rounds->start_weights_ = Buf{memory, parameters.dtype, parameters.num_elements};
  return rounds;
}

LocalSgdRounds::~LocalSgdRounds() {
  if (start_weights_) deps_.device->Release(start_weights_.data);
}

absl::Status LocalSgdRounds::RunLocalSteps(const LifeContext& life, const Grant& grant,
                                           WeightsPull* pull, RoundReport* report) {
  for (int step = 0; step < grant.local_steps; ++step) {
    RETURN_IF_ERROR(life.Check());
    if (step > 0 && deps_.stop_requested()) break;
    const SampleSpan samples = SamplesOfStep(grant, step);
    {
      TraceSpan span(deps_.trace, "training", "read data");
      RETURN_IF_ERROR(ReadTrainSpan(*deps_.dataset, *life.sample_order, samples, &batch_));
    }
    deps_.on_step({.round = grant.round,
                   .step = step,
                   .num_steps = grant.local_steps,
                   .learning_rate = grant.learning_rates[step],
                   .server_incarnation = life.registration->server_incarnation});
    const absl::StatusOr<BatchResult> result = MakeStep(
        step == 0 ? pull : nullptr, grant.learning_rates[step], life.registration->job.clip_norm);
    // Who computes may have left between two steps.
    if (absl::IsCancelled(result.status()) && step > 0 && deps_.stop_requested()) break;
    RETURN_IF_ERROR(result.status());
    report->loss_sum += result->loss_sum;
    report->num_predictions += result->num_predictions;
    report->num_samples += samples.count;
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> LocalSgdRounds::MakeStep(WeightsPull* pull, double learning_rate,
                                                     double clip_norm) {
  if (inner_optimizer_ == nullptr) {
    // The step changes the weights.
    if (pull != nullptr) RETURN_IF_ERROR(KeepStartWeights(*pull));
    return TrainStep(pull);
  }
  // The first step runs while weights still arrive.
  ASSIGN_OR_RETURN(const BatchResult result, TrainStep(pull));
  if (pull != nullptr) RETURN_IF_ERROR(KeepStartWeights(*pull));
  TraceSpan span(deps_.trace, "training", "inner optimizer");
  RETURN_IF_ERROR(inner_optimizer_->Step(deps_.model->parameters(),
                                         deps_.model->narrow_parameters(), deps_.model->gradients(),
                                         learning_rate, clip_norm));
  return result;
}

absl::StatusOr<BatchResult> LocalSgdRounds::TrainStep(WeightsGate* gate) {
  if (deps_.trace == nullptr || !deps_.trace->is_recording()) {
    return deps_.model->TrainStep(batch_, gate, /*sink=*/nullptr);
  }
  RETURN_IF_ERROR(timeline_.Flush());
  StepTrace trace(deps_.trace, &timeline_, gate, /*sink=*/nullptr);
  return deps_.model->TrainStep(batch_, &trace, &trace);
}

absl::Status LocalSgdRounds::KeepStartWeights(WeightsPull& pull) {
  RETURN_IF_ERROR(pull.WaitForAll());
  const Buf parameters = deps_.model->parameters();
  deps_.device->Copy(start_weights_.data, parameters.data,
                     DTypeBytes(parameters.dtype) * parameters.num_elements, StreamKind::kCompute);
  return absl::OkStatus();
}

void LocalSgdRounds::MakeContribution() {
  if (contribution_kind_ == ContributionKind::kWeights) return;
  deps_.device->Subtract(deps_.model->gradients(), start_weights_, deps_.model->parameters());
}

absl::Status LocalSgdRounds::Train(const LifeContext& life, const Grant& grant, WeightsPull& pull,
                                   std::optional<ContributionPush>& push, RoundReport* report) {
  // Servers that began anew may have gone back to other weights than those the state belongs to.
  const uint64_t servers = life.registration->server_incarnation;
  if (std::exchange(server_incarnation_, servers) != servers && inner_optimizer_ != nullptr) {
    inner_optimizer_->Reset();
  }
  RETURN_IF_ERROR(RunLocalSteps(life, grant, &pull, report));
  if (inner_optimizer_ != nullptr) RETURN_IF_ERROR(CheckOptimizer(grant.round));
  MakeContribution();
  // Fewer than granted if the worker was told to stop meanwhile.
  const ContributionHeader header{
      .round = grant.round, .kind = contribution_kind_, .num_samples = report->num_samples};
  push.emplace(*life.registration, header, exchange_->contribution(), &pull, life.transport,
               deps_.clock, deps_.trace, leaves());
  return push->AllBlocksReady();
}

absl::Status LocalSgdRounds::CheckOptimizer(Round round) {
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
