#include "worker/trainer/pulled_rounds.h"

#include <utility>

#include "common/status_macros.h"

namespace lodestar {

absl::Status PulledRounds::PullWeights(const LifeContext& life, Round min_round) {
  const std::unique_ptr<WeightsPull> pull = TakePull(life, min_round);
  RETURN_IF_ERROR(pull->WaitForAll());
  if (deps_.on_weights) deps_.on_weights(pull->versions());
  return absl::OkStatus();
}

std::unique_ptr<WeightsPull> PulledRounds::BeginPull(const LifeContext& life, Round min_round) {
  return std::make_unique<WeightsPull>(
      *life.registration, min_round, AllBuckets(*life.registration), exchange_->weights(),
      exchange_->ShadowFor(*life.registration), life.transport, deps_.clock, deps_.trace);
}

std::unique_ptr<WeightsPull> PulledRounds::TakePull(const LifeContext& life, Round min_round) {
  CountPull();
  std::optional<Ahead> ahead = std::exchange(ahead_, std::nullopt);
  if (ahead.has_value() && ahead->min_round == min_round) return std::move(ahead->pull);
  ahead.reset();  // two pulls would write into the same vector
  return BeginPull(life, min_round);
}

absl::StatusOr<RoundReport> PulledRounds::RunRound(const LifeContext& life, const Grant& grant) {
  const absl::Time start = deps_.clock->Now();
  RoundReport report;
  report.round = grant.round;
  if (grant.kind == Grant::Kind::kTrain) {
    ASSIGN_OR_RETURN(const std::optional<RoundReport> delivered, SettleResidual(life, grant.round));
    if (delivered.has_value()) return *delivered;
  }
  RETURN_IF_ERROR(timeline_.BeginRound());
  const std::unique_ptr<WeightsPull> pulling = TakePull(life, grant.min_round);
  WeightsPull& pull = *pulling;
  pull.TellActivity(deps_.on_activity);
  if (!deps_.overlap || deps_.on_weights) RETURN_IF_ERROR(pull.WaitForAll());
  if (deps_.on_weights) deps_.on_weights(pull.versions());
  RETURN_IF_ERROR(EvaluateHeldout(life, grant, &pull, &report));
  std::optional<ContributionPush> push;
  if (grant.kind == Grant::Kind::kEvaluate) {
    RETURN_IF_ERROR(pull.WaitForAll());
  } else {
    RETURN_IF_ERROR(Train(life, grant, pull, push, &report));
    report.base_version = pull.version(0);
  }
  report.communication = pull.blocked() + std::exchange(untold_communication_, {});
  if (push.has_value()) {
    RETURN_IF_ERROR(push->AwaitMade());
    report.compute = deps_.clock->Now() - start - pull.blocked();
    RETURN_IF_ERROR(Keep(life, *push, report));
  }
  report.compute = deps_.clock->Now() - start - pull.blocked();
  if (!push.has_value()) return report;
  RETURN_IF_ERROR(HandOver(life, *push, report));
  RETURN_IF_ERROR(timeline_.EndRound());
  return report;
}

absl::Status PulledRounds::HandOver(const LifeContext& life, ContributionPush& push,
                                    const RoundReport& report) {
  const absl::Time start = deps_.clock->Now();
  deps_.on_activity("push");
  TellContributed(report);
  PullAhead(life, report.round + 1, PullsAhead::kBesideThePush);
  RETURN_IF_ERROR(push.Finish());
  OnHandedOver(deps_.clock->Now() - start);
  ForgetKept();
  PullAhead(life, report.round + 1, PullsAhead::kOnceAcknowledged);
  untold_communication_ = push.blocked();
  return absl::OkStatus();
}

void PulledRounds::PullAhead(const LifeContext& life, Round next_round, PullsAhead now) {
  if (!deps_.pulls_ahead || now != pulls_ahead_ || deps_.stop_requested()) return;
  ahead_ = {next_round, BeginPull(life, next_round)};
}

}  // namespace lodestar
