#include "worker/trainer/round_runner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/remedy.h"
#include "common/status_macros.h"
#include "worker/trainer/exact_contribution.h"
#include "worker/trainer/grant_samples.h"

namespace lodestar {
namespace {

// Held-out samples read at once: bounds the memory of a batch, not the arithmetic.
constexpr int64_t kSamplesPerRead = 256;

// Another life, or another connection, may bring what this one did not.
bool MayGoBetter(const absl::Status& status) {
  const Remedy remedy = RemedyFor(status);
  return remedy == Remedy::kRejoin || remedy == Remedy::kReconnect;
}

}  // namespace

absl::StatusOr<RoundReport> RoundRunner::Run(const LifeContext& life, const Grant& grant) {
  const Registration& registration = *life.registration;
  RETURN_IF_ERROR(CheckGrant(grant, registration.job, *deps_.dataset));
  const bool is_made = kept_.has_value() &&
                       kept_->server_incarnation == registration.server_incarnation &&
                       kept_->life == registration.life && kept_->round == grant.round &&
                       grant.kind == Grant::Kind::kTrain;
  if (!is_made) kept_.reset();
  absl::StatusOr<RoundReport> report = is_made ? RunAgain(life) : RunRound(life, grant);
  if (report.ok() || MayGoBetter(report.status())) return report;
  kept_.reset();
  return AsFinal(report.status());
}

absl::Status RoundRunner::PullWeights(const LifeContext& life, Round min_round) {
  const std::unique_ptr<WeightsPull> pull = TakePull(life, min_round);
  RETURN_IF_ERROR(pull->WaitForAll());
  if (deps_.on_weights) deps_.on_weights(pull->versions());
  return absl::OkStatus();
}

std::unique_ptr<WeightsPull> RoundRunner::BeginPull(const LifeContext& life, Round min_round) {
  return std::make_unique<WeightsPull>(*life.registration, min_round, exchange_->weights(),
                                       exchange_->ShadowFor(*life.registration), life.transport,
                                       deps_.clock, deps_.trace);
}

std::unique_ptr<WeightsPull> RoundRunner::TakePull(const LifeContext& life, Round min_round) {
  std::optional<Ahead> ahead = std::exchange(ahead_, std::nullopt);
  if (ahead.has_value() && ahead->min_round == min_round) return std::move(ahead->pull);
  ahead.reset();  // two pulls would write into the same vector
  return BeginPull(life, min_round);
}

absl::Status RoundRunner::HandInInitialWeights(const Registration& registration,
                                               ParameterTransport* transport) {
  ExactContribution weights(exchange_->weights());
  for (const Bucket& bucket : registration.buckets()) {
    RETURN_IF_ERROR(weights.Await(weights.Prepare(bucket)));
  }
  const MadeContribution made{{.round = Round(0), .kind = ContributionKind::kInitialWeights},
                              &weights,
                              std::vector<Version>(registration.buckets().size())};
  return PushAgain(registration, made, transport, deps_.clock);
}

absl::StatusOr<RoundReport> RoundRunner::RunRound(const LifeContext& life, const Grant& grant) {
  const absl::Time start = deps_.clock->Now();
  RoundReport report;
  report.round = grant.round;
  RETURN_IF_ERROR(timeline_.BeginRound());
  const std::unique_ptr<WeightsPull> pulling = TakePull(life, grant.min_round);
  WeightsPull& pull = *pulling;
  pull.TellActivity(deps_.on_activity);
  if (!deps_.overlap || deps_.on_weights) RETURN_IF_ERROR(pull.WaitForAll());
  if (deps_.on_weights) deps_.on_weights(pull.versions());
  RETURN_IF_ERROR(EvaluateHeldout(life, grant, pull, &report));
  std::optional<ContributionPush> push;
  if (grant.kind == Grant::Kind::kEvaluate) {
    RETURN_IF_ERROR(pull.WaitForAll());
  } else {
    RETURN_IF_ERROR(Train(life, grant, pull, push, &report));
    report.base_version = pull.version(0);
  }
  report.communication = pull.blocked();
  report.compute = deps_.clock->Now() - start - report.communication;
  if (!push.has_value()) return report;
  RETURN_IF_ERROR(HandOver(life, grant, *push, &report));
  RETURN_IF_ERROR(timeline_.EndRound());
  if (deps_.pulls_ahead && !deps_.stop_requested()) {
    ahead_ = {grant.round + 1, BeginPull(life, grant.round + 1)};
  }
  report.compute = deps_.clock->Now() - start - report.communication;
  return report;
}

absl::Status RoundRunner::EvaluateHeldout(const LifeContext& life, const Grant& grant,
                                          WeightsPull& pull, RoundReport* report) {
  if (grant.num_heldout_samples == 0) return absl::OkStatus();
  const absl::Time start = deps_.clock->Now();
  const absl::Duration blocked_before = pull.blocked();
  TraceSpan span(deps_.trace, "training", "evaluation");
  const Dataset& dataset = *deps_.dataset;
  HostBatch batch;
  std::vector<int64_t> samples;
  const int64_t end = grant.first_heldout_sample + grant.num_heldout_samples;
  for (int64_t k = grant.first_heldout_sample; k < end; k += kSamplesPerRead) {
    RETURN_IF_ERROR(life.Check());
    samples.clear();
    for (int64_t i = k; i < std::min(end, k + kSamplesPerRead); ++i) {
      samples.push_back(
          HeldoutSampleAt(i, grant.evaluation_set_size, dataset.num_heldout_samples()));
    }
    RETURN_IF_ERROR(dataset.ReadHeldout(samples, &batch));
    deps_.on_step(
        {.round = grant.round, .server_incarnation = life.registration->server_incarnation});
    ASSIGN_OR_RETURN(const BatchResult result, deps_.model->Evaluate(batch, &pull));
    report->heldout_loss_sum += result.loss_sum;
    report->heldout_correct += result.num_correct;
    report->heldout_predictions += result.num_predictions;
  }
  report->evaluation += deps_.clock->Now() - start - (pull.blocked() - blocked_before);
  return absl::OkStatus();
}

absl::Status RoundRunner::HandOver(const LifeContext& life, const Grant& grant,
                                   ContributionPush& push, RoundReport* report) {
  kept_ = {life.registration->server_incarnation, life.registration->life, grant.round, push.made(),
           *report};
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
