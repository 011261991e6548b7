// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/local_sgd_rounds.h"

#include "common/runtime/status_macros.h"

namespace lodestar::trainer {

absl::StatusOr<std::unique_ptr<LocalSgdRounds>> LocalSgdRounds::Create(
    const job::JobSpec& job, const RoundRunnerDeps& deps) {
  auto rounds = std::unique_ptr<LocalSgdRounds>(new LocalSgdRounds(job, deps));
  const kernels::Buf parameters = deps.model->parameters();
  // Between rounds the gradient is not needed, so its vector holds the pseudo-gradient.
  const kernels::Buf contribution =
      rounds->contribution_kind_ == messages::ContributionKind::kWeights ? parameters
                                                                         : deps.model->gradients();
  ASSIGN_OR_RETURN(rounds->exchange_,
                   ExchangeState::Create(job, deps.model->layout(), deps.device, parameters,
                                         contribution, &rounds->timeline_));
  ASSIGN_OR_RETURN(rounds->steps_, LocalSteps::Create(job, rounds->deps_, &rounds->timeline_));
  ASSIGN_OR_RETURN(rounds->start_memory_, model::DeviceMemory::Allocate(
                                              deps.device, kernels::DTypeBytes(parameters.dtype) *
                                                               parameters.num_elements));
  rounds->start_weights_ =
      kernels::Buf{rounds->start_memory_.data(), parameters.dtype, parameters.num_elements};
  return rounds;
}

absl::Status LocalSgdRounds::RunLocalSteps(const LifeContext& life, const messages::Grant& grant,
                                           WeightsPull& pull, messages::RoundReport* report) {
  for (int step = 0; step < grant.local_steps; ++step) {
    RETURN_IF_ERROR(life.Check());
    if (step > 0 && steps_->window_end().IsDue(grant, step)) break;
    LocalSteps::Work work = {
        .grant = &grant, .order = life.sample_order, .clip_norm = life.registration->job.clip_norm};
    if (step == 0) {
      // During the first step, weights still arrive.
      work.gate = &pull;
      work.before_change = [this, &pull] { return KeepStartWeights(pull); };
    }
    const absl::Status taken = steps_->Take(work, step, report);
    if (step > 0 && steps_->IsLeft(grant, step, taken)) break;
    RETURN_IF_ERROR(taken);
    if (step == 0) steps_->window_end().OnPulled(pull.blocked());
  }
  return absl::OkStatus();
}

absl::Status LocalSgdRounds::KeepStartWeights(WeightsPull& pull) {
  RETURN_IF_ERROR(pull.WaitForAll());
  const kernels::Buf parameters = deps_.model->parameters();
  deps_.device->Copy(start_weights_.data, parameters.data,
                     kernels::DTypeBytes(parameters.dtype) * parameters.num_elements,
                     kernels::StreamKind::kCompute);
  return absl::OkStatus();
}

void LocalSgdRounds::MakeContribution() {
  if (contribution_kind_ == messages::ContributionKind::kWeights) return;
  deps_.device->Subtract(deps_.model->gradients(), start_weights_, deps_.model->parameters());
}

absl::Status LocalSgdRounds::Train(const LifeContext& life, const messages::Grant& grant,
                                   WeightsPull& pull, std::optional<ContributionPush>& push,
                                   messages::RoundReport* report) {
  steps_->Begin(life.registration->server_incarnation, grant.round);
  RETURN_IF_ERROR(RunLocalSteps(life, grant, pull, report));
  RETURN_IF_ERROR(deps_.on_steps_made());
  RETURN_IF_ERROR(steps_->Check(grant.round));
  MakeContribution();
  // The worker may have computed fewer samples than granted, if it was told to stop during the
  // steps.
  const client::ContributionHeader header{.round = grant.round,
                                          .kind = contribution_kind_,
                                          .num_samples = report->num_samples,
                                          .weight = deps_.model->contribution_weight()};
  push.emplace(*life.registration, header, exchange_->contribution(), &pull, life.transport,
               deps_.clock, deps_.trace, leaves());
  return push->AllBlocksReady();
}

}  // namespace lodestar::trainer
