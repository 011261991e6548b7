// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/cluster_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lodestar::coordinator {
namespace {

// Maximum time until a dropped worker registers again. The worker pauses for at most a second
// before it does so.
constexpr absl::Duration kReturnTime = absl::Seconds(3);

}  // namespace

ClusterState::ClusterState(CoordinatorConfig the_config, model::JobModel the_model, absl::Time now)
    : config(std::move(the_config)),
      started_at(now),
      model(std::move(the_model)),
      shards(config.num_shards, config.lease, now),
      membership({.num_shards = config.num_shards,
                  .lease = config.lease,
                  .caller_patience = kCallerPatience,
                  .life_key = config.life_key,
                  .registrations = config.registrations}),
      rounds(config.job, config.num_shards, config.lease, config.upstream, now),
      checkpoints({.num_shards = config.num_shards,
                   .folder = config.checkpoint_dir,
                   .fallback_folder = config.fallback_dir,
                   .schedule = config.checkpoint_schedule,
                   .has_journal = config.has_journal,
                   .journal_limit_bytes = config.journal_limit_bytes,
                   .is_site = !config.upstream.empty(),
                   .stop_write_time = ending::JobEnding::WriteTimeOf(config.stop_timeout)}),
      faults(config.divergence),
      stragglers({.lease = config.lease,
                  .round_timeout = config.round_timeout,
                  .supplier_rest = kCallerPatience}),
      ending({.stop_timeout = config.stop_timeout, .lease = config.lease}) {
  const shards::JournalFacts& journal = config.journal;
  journal_id = journal.end.journal_id != 0 ? journal.end.journal_id : journal.new_journal_id;
  if (journal.folder.empty()) journal_id = 0;
}

bool ClusterState::is_ready() const {
  if (is_comparing()) return false;
  switch (phase) {
    case CoordinatorPhase::kRunning:
    case CoordinatorPhase::kEvaluating:
    case CoordinatorPhase::kSaving:
      return true;
    case CoordinatorPhase::kDone:
      return model.map() != nullptr;
    default:
      return false;
  }
}

bool ClusterState::AwaitsJournals(WorkerId worker, Round round, bool is_patience_over) const {
  if (!is_ready() || job::DefersContributions(model.job()) || !shards.all_keep_journals())
    return false;
  for (int shard = 0; shard < config.num_shards; ++shard) {
    const bool is_waited_for = !is_patience_over || shards.servers()[shard].is_away();
    if (is_waited_for && rounds.Of(worker).AwaitsJournal(round, shard)) return true;
  }
  return false;
}

checkpoints::StandingOrders ClusterState::orders() const {
  checkpoints::StandingOrders orders = {.quarantine = faults.quarantine().memory()};
  if (ending.pause().has_value()) orders.pause = ending.pause()->reason;
  return orders;
}

void ClusterState::TakeOrders(checkpoints::StandingOrders orders, absl::Time now) {
  faults.Resume(std::move(orders.quarantine));
  ending.EndPause();
  if (orders.pause.has_value()) ending.Pause(*orders.pause, now);
}

std::string ClusterState::NameOf(WorkerId worker) const {
  const membership::WorkerRecord* record = membership.table().Find(worker);
  return record == nullptr ? absl::StrCat("worker ", worker.value()) : record->name;
}

std::vector<std::string> ClusterState::Present() const {
  std::vector<std::string> names;
  for (const auto& [id, record] : membership.table().workers()) {
    if (record.is_alive()) names.push_back(record.name);
  }
  return names;
}

std::vector<std::string> ClusterState::Returning(absl::Time now) const {
  std::vector<std::string> names;
  const bool is_gathering = rounds.IsGathering(now);
  // A worker that was dropped after `end` was dropped because it delayed the end. The job does not
  // wait for it again.
  const absl::Time end = phase == CoordinatorPhase::kDone
                             ? ending.stop_requested_at().value_or(ending.over_since())
                             : absl::InfinitePast();
  for (const auto& [id, record] : membership.table().workers()) {
    const bool calls_again = record.state == membership::WorkerState::kDropped &&
                             record.ended_at <= end && now < record.ended_at + kReturnTime &&
                             faults.quarantine().Find(record.name) == nullptr;
    if (calls_again || (is_gathering && record.is_away)) names.push_back(record.name);
  }
  return names;
}

std::vector<rounds::RoundMember> ClusterState::RoundMembers() const {
  std::vector<rounds::RoundMember> members;
  for (const membership::WorkerRecord* record : membership.table().Members()) {
    const std::optional<messages::Grant>& grant = rounds.Of(record->id).grant();
    members.push_back({.id = record->id,
                       .incarnation = record->incarnation,
                       .name = record->name,
                       .usual_round = stragglers.Of(record->id).UsualRound(grant)});
  }
  return members;
}

stragglers::StragglerFacts ClusterState::FactsOfStragglers(absl::Time now) const {
  const bool has_work =
      phase == CoordinatorPhase::kRunning || phase == CoordinatorPhase::kEvaluating;
  stragglers::StragglerFacts facts = {.is_working = has_work && !is_shard_away(),
                                      .uses_rosters = rounds.uses_rosters(),
                                      .required_members = std::max(1, rounds.Required(now).count),
                                      .usual_round = rounds.progress().usual_round(),
                                      .back_at = shards.back_at()};
  for (const shards::ShardFleet::Server& server : shards.servers()) {
    // Shard 0 is in the coordinator's process. Its server is never silent, so it gets the default
    // values.
    facts.servers.push_back(facts.servers.empty() ? stragglers::StragglerFacts::Server()
                                                  : stragglers::StragglerFacts::Server{
                                                        server.heard_at, server.runs_since});
  }
  for (const auto& [number, round] : rounds.open()) {
    const std::vector<WorkerId> missing = round.Missing();
    facts.rounds.push_back({number, round.opened_at(),
                            missing.empty() ? WorkerId() : missing.front(), round.front_since()});
  }
  for (const membership::WorkerRecord* member : membership.table().Members()) {
    facts.members.push_back(FactsOf(member->id));
  }
  if (const model::WeightsSupply& supply = model.supply(); supply.is_awaited()) {
    const bool is_waited_for =
        supply.supplier().has_value() && supply.others_since().has_value() && Present().size() > 1;
    facts.is_working &= is_waited_for;
    if (is_waited_for) facts.supplier = {supply.supplier()->worker, *supply.others_since()};
    return facts;
  }
  const bool opens_rounds = (!rounds.uses_rosters() || rounds.open().empty()) &&
                            !ending.is_stopping() && !ending.is_work_held() && !ending.is_paused();
  facts.awaits_asking =
      facts.is_working && opens_rounds &&
      (phase == CoordinatorPhase::kEvaluating ||
       (rounds.has_next_round() && rounds.CanGoOnWith(facts.members.size(), now)));
  return facts;
}

stragglers::WorkerFacts ClusterState::FactsOf(WorkerId worker) const {
  const rounds::WorkerAssignment& assignment = rounds.Of(worker);
  return {.id = worker,
          .grant = assignment.grant().has_value() ? &*assignment.grant() : nullptr,
          .given_at = assignment.given_at(),
          .idle_since = assignment.idle_since(),
          .is_waiting = assignment.is_waiting(),
          .is_leaving = assignment.is_leaving(),
          .has_reported = assignment.has_reported(),
          .has_completed_round = assignment.has_completed_round(),
          .certificate = membership.ConnectionOf(worker).identity()};
}

}  // namespace lodestar::coordinator
