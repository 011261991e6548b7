// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/gradient_rounds.h"

#include "common/messages/contribution.h"
#include "common/runtime/status_macros.h"
#include "worker/trainer/grant_samples.h"
#include "worker/trainer/step_trace.h"

namespace lodestar::trainer {

absl::StatusOr<std::unique_ptr<GradientRounds>> GradientRounds::Create(const job::JobSpec& job,
                                                                       const RoundRunnerDeps& deps,
                                                                       double client_clip_norm) {
  auto rounds = std::unique_ptr<GradientRounds>(new GradientRounds(deps, client_clip_norm));
  ASSIGN_OR_RETURN(
      rounds->exchange_,
      ExchangeState::Create(job, deps.model->layout(), deps.device, deps.model->parameters(),
                            deps.model->gradients(), &rounds->timeline_));
  rounds->skipped_.emplace(rounds->exchange_->contribution()->encoding());
  ASSIGN_OR_RETURN(rounds->clipper_, GradientClipper::Create(deps.device));
  return rounds;
}

absl::Status GradientRounds::Train(const LifeContext& life, const messages::Grant& grant,
                                   WeightsPull& pull, std::optional<ContributionPush>& push,
                                   messages::RoundReport* report) {
  const SampleSpan samples = SamplesOfStep(grant, 0);
  {
    process::TraceSpan span(deps_.trace, "training", "read data");
    RETURN_IF_ERROR(ReadTrainSpan(*deps_.dataset, *life.sample_order, samples, &batch_));
  }
  deps_.on_step({.round = grant.round,
                 .samples = samples,
                 .learning_rate = grant.learning_rates[0],
                 .server_incarnation = life.registration->server_incarnation});
  client::ContributionHeader header{.round = grant.round,
                                    .kind = messages::ContributionKind::kGradient};
  const auto start_push = [&](ContributionBytes* bytes) {
    push.emplace(*life.registration, header, bytes, &pull, life.transport, deps_.clock, deps_.trace,
                 leaves());
  };
  if (!pushes_late()) start_push(exchange_->contribution());
  StepTrace step(deps_.trace, &timeline_, &pull, push.has_value() ? &*push : nullptr);
  ASSIGN_OR_RETURN(const model::BatchResult result, deps_.model->TrainStep(batch_, &step, &step));
  if (result.is_skipped) {
    header.num_samples = messages::kSkippedSamples;
    start_push(&*skipped_);
    RETURN_IF_ERROR(push->AllBlocksReady());
  } else if (pushes_late()) {
    ASSIGN_OR_RETURN(header.scale,
                     clipper_->Scale(deps_.model->gradients(),
                                     deps_.model->layout().TrainedRanges(), client_clip_norm_));
    start_push(exchange_->contribution());
    RETURN_IF_ERROR(push->AllBlocksReady());
  }
  report->loss_sum = result.loss_sum;
  report->num_predictions = result.num_predictions;
  report->num_samples = grant.num_samples;
  return absl::OkStatus();
}

}  // namespace lodestar::trainer
