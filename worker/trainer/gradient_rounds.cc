#include "worker/trainer/gradient_rounds.h"

#include <optional>

#include "common/contribution.h"
#include "common/status_macros.h"
#include "worker/trainer/contribution_push.h"
#include "worker/trainer/grant_samples.h"
#include "worker/trainer/heldout_evaluator.h"
#include "worker/trainer/step_trace.h"
#include "worker/trainer/weights_pull.h"

namespace lodestar {

absl::StatusOr<std::unique_ptr<GradientRounds>> GradientRounds::Create(const JobSpec& job,
                                                                       const RoundRunnerDeps& deps,
                                                                       double client_clip_norm) {
  auto rounds = std::unique_ptr<GradientRounds>(new GradientRounds(deps, client_clip_norm));
  ASSIGN_OR_RETURN(
      rounds->exchange_,
      ExchangeState::Create(job, deps.model->layout(), deps.device, deps.model->parameters(),
                            deps.model->gradients(), &rounds->timeline_));
  ASSIGN_OR_RETURN(rounds->clipper_, GradientClipper::Create(deps.device));
  return rounds;
}

absl::StatusOr<RoundReport> GradientRounds::RunRound(const LifeContext& life,
                                                     const WorkGrant& grant) {
  const absl::Time start = deps_.clock->Now();
  RoundReport report;
  report.round = grant.round;
  RETURN_IF_ERROR(timeline_.BeginRound());
  WeightsPull pull(*life.registration, grant.min_round, exchange_->weights(),
                   exchange_->ShadowFor(*life.registration), life.transport, deps_.clock,
                   deps_.trace);
  pull.TellActivity(deps_.on_activity);
  if (!deps_.overlap) RETURN_IF_ERROR(pull.WaitForAll());
  RETURN_IF_ERROR(EvaluateHeldout(life, grant, deps_, &pull, &report));
  if (grant.kind == GrantKind::kEvaluate) {
    RETURN_IF_ERROR(pull.WaitForAll());
    report.communication = pull.blocked();
    report.compute = deps_.clock->Now() - start - report.communication;
    return report;
  }

  {
    TraceSpan span(deps_.trace, "training", "read data");
    RETURN_IF_ERROR(
        ReadTrainSpan(*deps_.dataset, *life.sample_order, SamplesOfStep(grant, 0), &batch_));
  }
  ContributionHeader header{.round = grant.round, .kind = ContributionKind::kGradient};
  std::optional<ContributionPush> push;
  const auto start_push = [&] {
    push.emplace(*life.registration, header, exchange_->contribution(), &pull, life.transport,
                 deps_.clock, deps_.trace);
  };
  if (!pushes_late()) start_push();
  StepTrace step(deps_.trace, &timeline_, &pull, push.has_value() ? &*push : nullptr);
  ASSIGN_OR_RETURN(const BatchResult result, deps_.model->TrainStep(batch_, &step, &step));
  if (pushes_late()) {
    ASSIGN_OR_RETURN(header.scale, clipper_->Scale(deps_.model->gradients(), client_clip_norm_));
    start_push();
    RETURN_IF_ERROR(push->AllBlocksReady());
  }
  report.loss_sum = result.loss_sum;
  report.num_predictions = result.num_predictions;
  report.num_samples = grant.num_samples;
  report.base_version = pull.version(0);
  report.communication = pull.blocked();
  report.compute = deps_.clock->Now() - start - report.communication;
  RETURN_IF_ERROR(HandOver(life, grant, *push, &report));
  RETURN_IF_ERROR(timeline_.EndRound());
  report.compute = deps_.clock->Now() - start - report.communication;
  return report;
}

}  // namespace lodestar
