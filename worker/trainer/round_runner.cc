#include "worker/trainer/round_runner.h"

#include "common/remedy.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

// Another life, or another connection, may bring what this one did not.
bool MayGoBetter(const absl::Status& status) {
  const Remedy remedy = RemedyFor(status);
  return remedy == Remedy::kRejoin || remedy == Remedy::kReconnect;
}

}  // namespace

absl::StatusOr<RoundReport> RoundRunner::Run(const LifeContext& life, const WorkGrant& grant) {
  const bool is_made = kept_.has_value() && kept_->life == life.registration->life() &&
                       kept_->round == grant.round && grant.kind == GrantKind::kTrain;
  if (!is_made) kept_.reset();
  absl::StatusOr<RoundReport> report = is_made ? RunAgain(life) : RunRound(life, grant);
  if (report.ok() || MayGoBetter(report.status())) return report;
  kept_.reset();
  return AsFinal(report.status());
}

absl::Status RoundRunner::HandOver(const LifeContext& life, const WorkGrant& grant,
                                   ContributionPush& push, RoundReport* report) {
  kept_ = {life.registration->life(), grant.round, push.made(), *report};
  deps_.on_activity("push");
  RETURN_IF_ERROR(push.Finish());
  kept_.reset();
  report->communication += push.blocked();
  return absl::OkStatus();
}

absl::StatusOr<RoundReport> RoundRunner::RunAgain(const LifeContext& life) {
  const absl::Time start = deps_.clock->Now();
  deps_.on_activity("push");
  RETURN_IF_ERROR(PushAgain(*life.registration, kept_->made, life.transport, deps_.clock));
  RoundReport report = kept_->report;
  kept_.reset();
  report.communication += deps_.clock->Now() - start;
  return report;
}

}  // namespace lodestar
