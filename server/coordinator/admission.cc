// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/admission.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/robust_mean.h"
#include "common/runtime/time_text.h"
#include "server/coordinator/verdict_words.h"

namespace lodestar::coordinator {
namespace {

std::string SecondsText(absl::Duration duration) {
  return DurationText(absl::Ceil(duration, absl::Seconds(1)));
}

}  // namespace

absl::Status CheckRoom(const ClusterState& state, absl::string_view name) {
  if (!state.model.job().robust_mean.is_robust()) return absl::OkStatus();
  return MemberRefusalStatus(state, state.membership.CheckRoom(name, job::kMaxRobustContributions));
}

absl::Status CheckMoreNames(const ClusterState& state, const messages::RegisterCall& call) {
  membership::NameFacts facts = {
      .workers_needed = std::max(state.model.job().min_workers, state.model.job().keep_workers)};
  for (const WorkerId worker : state.membership.WorkersOf(call.identity)) {
    const rounds::WorkerAssignment& assignment = state.rounds.Of(worker);
    facts.rounds_completed += static_cast<int64_t>(assignment.memory().rounds_completed);
    if (state.membership.table().Find(worker)->name == call.name) {
      facts.has_completed_round = assignment.has_completed_round();
    }
  }
  return MemberRefusalStatus(state, state.membership.CheckNames(call, facts));
}

absl::Status CheckRest(const ClusterState& state, WorkerId worker, absl::Time now) {
  if (!state.rounds.CanGoOnWith(state.membership.table().Members().size(), now))
    return absl::OkStatus();
  const stragglers::WorkerFacts facts = state.FactsOf(worker);
  const stragglers::Rest rest = state.stragglers.RestOf(facts, now);
  if (rest.kind == stragglers::Rest::Kind::kNone) return absl::OkStatus();
  if (rest.kind == stragglers::Rest::Kind::kOwn) {
    return absl::UnavailableError(
        absl::StrCat("this worker held up a round, so the other workers continue without it for "
                     "some time. It may join again in ",
                     SecondsText(rest.left),
                     ". Check its network path to the servers and the device that it computes on"));
  }
  return absl::UnavailableError(absl::StrCat(
      "another worker with certificate '", facts.certificate,
      "' held up a round, so new names of this certificate must wait. This worker may join in ",
      SecondsText(rest.left), ". Give each machine a separate certificate"));
}

absl::Status CheckMayClaimSupply(const ClusterState& state, const messages::RegisterCall& call,
                                 absl::Time now) {
  const membership::WorkerRecord* record = state.membership.table().FindByName(call.name);
  if (record == nullptr || now >= state.stragglers.Of(record->id).rests_until()) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      "not ready: this program did not supply the initial weights in time, so another program is "
      "asked for them; the call is retried automatically");
}

absl::Status CheckBrings(const ClusterState& state, const messages::DatasetInfo& data) {
  if (!state.rounds.is_site() || !data.own_partition) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "--data_partition=own cannot be used by a worker of a site, because the upstream servers "
      "hand out samples of the data that all workers share. Start the worker with that data and "
      "without this flag, or let it join the upstream servers");
}

membership::KnownReports KnownReportsOf(const ClusterState& state, absl::string_view name) {
  membership::KnownReports known = {.server_incarnation = state.shards.server_incarnation(),
                                    .next_round = state.rounds.ledger().next_round()};
  const membership::WorkerRecord* const record = state.membership.table().FindByName(name);
  if (record != nullptr && record->is_alive()) {
    known.last_reported = state.rounds.Of(record->id).memory().last_reported;
  }
  return known;
}

}  // namespace lodestar::coordinator
