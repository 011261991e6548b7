// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/pulled_rounds.h"

#include <algorithm>
#include <utility>

#include "common/params/encoding.h"
#include "common/runtime/status_macros.h"
#include "worker/trainer/exposed_wait.h"
#include "worker/trainer/pull_order.h"

namespace lodestar::trainer {

absl::Status PulledRounds::PullWeights(const LifeContext& life, Round min_round) {
  const std::unique_ptr<WeightsPull> pull = TakePull(life, min_round);
  RETURN_IF_ERROR(pull->WaitForAll());
  if (deps_.on_weights) deps_.on_weights(pull->versions());
  return absl::OkStatus();
}

std::vector<uint32_t> PulledRounds::NeededOrder(const messages::Registration& registration) const {
  // The order in the last life is usable only if the servers still have the same number of buckets.
  return last_waited_.size() == registration.buckets().size() ? last_waited_
                                                              : AllBuckets(registration);
}

std::vector<uint32_t> PulledRounds::OrderBeside(const LifeContext& life,
                                                const ContributionPush& push) const {
  const messages::Registration& registration = *life.registration;
  std::vector<uint32_t> needed = NeededOrder(registration);
  // Servers that clip need the norm of the whole gradient. They have no new weights until the whole
  // gradient has arrived, so another order would bring no weights earlier.
  if (registration.job.clip_norm > 0.0) return needed;
  std::vector<int64_t> pulled_bytes;
  for (const params::Bucket& bucket : registration.buckets()) {
    pulled_bytes.push_back(
        params::EncodedBytes(registration.job.pull_encoding, bucket.range.size()));
  }
  const messages::PathFacts path = life.transport->path();
  const bool is_measured = path.up_bytes_per_second > 0.0 && path.down_bytes_per_second > 0.0;
  return PullOrder(needed, push.leaving(), pulled_bytes,
                   is_measured ? path.up_bytes_per_second / path.down_bytes_per_second : 1.0);
}

std::unique_ptr<WeightsPull> PulledRounds::BeginPull(const LifeContext& life, Round min_round,
                                                     std::vector<uint32_t> order) {
  return std::make_unique<WeightsPull>(
      *life.registration, min_round, std::move(order), exchange_->weights(),
      exchange_->ShadowFor(*life.registration), life.transport, deps_.clock, deps_.trace);
}

std::unique_ptr<WeightsPull> PulledRounds::TakePull(const LifeContext& life, Round min_round) {
  CountPull();
  std::optional<Ahead> ahead = std::exchange(ahead_, std::nullopt);
  if (ahead.has_value() && ahead->min_round == min_round) return std::move(ahead->pull);
  // The old pull must end before a new pull begins, because both write to the same vector.
  ahead.reset();
  return BeginPull(life, min_round, NeededOrder(*life.registration));
}

absl::StatusOr<messages::RoundReport> PulledRounds::RunRound(const LifeContext& life,
                                                             const messages::Grant& grant) {
  const absl::Time start = deps_.clock->Now();
  messages::RoundReport report;
  report.round = grant.round;
  if (grant.kind == messages::Grant::Kind::kTrain) {
    ASSIGN_OR_RETURN(const std::optional<messages::RoundReport> delivered,
                     SettleResidual(life, grant.round));
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
  if (grant.kind == messages::Grant::Kind::kEvaluate) {
    RETURN_IF_ERROR(pull.WaitForAll());
  } else {
    RETURN_IF_ERROR(Train(life, grant, pull, push, &report));
    report.base_version = pull.version(0);
  }
  last_waited_ = pull.waited();
  absl::Duration exposed;
  if (push.has_value()) {
    ASSIGN_OR_RETURN(exposed, AwaitMade(*push));
  }
  ASSIGN_OR_RETURN(const absl::Duration exposed_pull, pull.Exposed());
  exposed += exposed_pull;
  report.communication = exposed + std::exchange(untold_communication_, {});
  report.wait = std::exchange(untold_wait_, {});
  const auto computed = [&] {
    return std::max(absl::ZeroDuration(), deps_.clock->Now() - start - exposed);
  };
  if (push.has_value()) {
    report.compute = computed();
    RETURN_IF_ERROR(Keep(life, *push, report));
  }
  report.compute = computed();
  if (!push.has_value()) return report;
  RETURN_IF_ERROR(HandOver(life, *push, report));
  RETURN_IF_ERROR(timeline_.EndRound());
  return report;
}

absl::StatusOr<absl::Duration> PulledRounds::AwaitMade(ContributionPush& push) {
  ExposedWait exposed(deps_.device, deps_.clock);
  exposed.Begin();
  RETURN_IF_ERROR(push.AwaitMade());
  exposed.End();
  return exposed.Total();
}

absl::Status PulledRounds::HandOver(const LifeContext& life, ContributionPush& push,
                                    const messages::RoundReport& report) {
  const absl::Time start = deps_.clock->Now();
  deps_.on_activity("push");
  TellContributed(report);
  PullAhead(life, report.round + 1, PullsAhead::kBesideThePush, push);
  RETURN_IF_ERROR(push.Finish());
  OnHandedOver(deps_.clock->Now() - start);
  ForgetKept();
  PullAhead(life, report.round + 1, PullsAhead::kOnceAcknowledged, push);
  untold_communication_ = push.blocked();
  untold_wait_ = push.waited();
  return absl::OkStatus();
}

void PulledRounds::PullAhead(const LifeContext& life, Round next_round, PullsAhead now,
                             const ContributionPush& push) {
  if (!deps_.pulls_ahead || now != pulls_ahead_ || deps_.stop_requested()) return;
  ahead_ = {next_round, BeginPull(life, next_round, OrderBeside(life, push))};
}

}  // namespace lodestar::trainer
