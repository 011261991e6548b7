#include "server/coordinator/cluster_state.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "server/sync/policy_factory.h"

namespace lodestar {
namespace {

// A worker that is dropped registers again after a pause of at most a second.
constexpr absl::Duration kReturnTime = absl::Seconds(3);

}  // namespace

ClusterState::ClusterState(CoordinatorConfig the_config, std::optional<Layout> the_layout,
                           absl::Time now)
    : config(std::move(the_config)),
      asked_job(config.job),
      awaits_settings(std::holds_alternative<ClientModelSpec>(config.job.model.architecture)),
      started_at(now),
      policy(MakeClusterPolicy(config.job)),
      life_key(config.life_key),
      layout(std::move(the_layout)),
      shards(config.num_shards, now),
      norms(config.num_shards),
      membership(MembershipTable::Config{.lease = config.lease}),
      ledger(config.job, LedgerState{}),
      quota(config.job, config.lease),
      checkpoints(config.num_shards),
      schedule(config.checkpoint_schedule),
      last_save(!config.fallback_dir.empty()),
      faults(config.divergence) {
  const JournalFacts& journal = config.journal;
  journal_id = journal.end.journal_id != 0 ? journal.end.journal_id : journal.new_journal_id;
  if (journal.folder.empty()) journal_id = 0;
  if (!config.upstream.empty()) site.emplace(config.upstream, now);
}

bool ClusterState::is_ready() const {
  if (is_comparing()) return false;
  switch (phase) {
    case CoordinatorPhase::kRunning:
    case CoordinatorPhase::kEvaluating:
    case CoordinatorPhase::kSaving:
      return true;
    case CoordinatorPhase::kDone:
      return map != nullptr;
    default:
      return false;
  }
}

bool ClusterState::AwaitsJournals(WorkerId worker, Round round, bool is_patience_over) const {
  if (!is_ready() || DefersContributions(config.job) || !shards.all_keep_journals()) return false;
  for (int shard = 0; shard < config.num_shards; ++shard) {
    const bool is_waited_for = !is_patience_over || shards.entries()[shard].is_away();
    if (is_waited_for && desks.at(worker).assignment.AwaitsJournal(round, shard)) return true;
  }
  return false;
}

StandingOrders ClusterState::orders() const {
  StandingOrders orders = {.quarantine = faults.quarantine().memory()};
  if (pause.has_value()) orders.pause = pause->reason;
  return orders;
}

void ClusterState::TakeOrders(StandingOrders orders, absl::Time now) {
  faults.Resume(std::move(orders.quarantine));
  pause.reset();
  if (orders.pause.has_value()) pause = JobPause{*std::move(orders.pause), now};
}

std::string ClusterState::NameOf(WorkerId worker) const {
  const WorkerRecord* record = membership.Find(worker);
  return record == nullptr ? absl::StrCat("worker ", worker.value()) : record->name;
}

std::vector<std::string> ClusterState::Present() const {
  std::vector<std::string> names;
  for (const auto& [id, record] : membership.workers()) {
    if (record.is_alive()) names.push_back(record.name);
  }
  return names;
}

std::vector<std::string> ClusterState::Returning(absl::Time now) const {
  std::vector<std::string> names;
  const bool is_gathering = quota.IsGathering(now);
  // A worker that was dropped after this time held the end up, so it is not waited for.
  const absl::Time end = phase == CoordinatorPhase::kDone ? stop_requested_at.value_or(over_since)
                                                          : absl::InfinitePast();
  for (const auto& [id, record] : membership.workers()) {
    const bool calls_again = record.state == WorkerState::kDropped && record.ended_at <= end &&
                             now < record.ended_at + kReturnTime &&
                             faults.quarantine().Find(record.name) == nullptr;
    if (calls_again || (is_gathering && record.is_away)) names.push_back(record.name);
  }
  return names;
}

std::vector<RosterMember> ClusterState::Waiting() const {
  std::vector<RosterMember> waiting;
  for (const WorkerRecord* record : membership.Members()) {
    if (desks.at(record->id).assignment.is_waiting())
      waiting.push_back({record->id, record->incarnation, 0});
  }
  return waiting;
}

bool ClusterState::OwesContribution() const {
  if (ledger.is_exhausted()) return false;
  const std::vector<const WorkerRecord*> members = membership.Members();
  return std::any_of(members.begin(), members.end(), [this](const WorkerRecord* member) {
    return desks.at(member->id).assignment.owes_contribution();
  });
}

ClusterView ClusterState::View(absl::Time now) const {
  ClusterView view;
  view.required = quota.Required(now);
  for (const WorkerRecord* record : membership.Members()) {
    view.members.push_back(desks.at(record->id).Progress(record->id, record->name, now));
  }
  if (open.empty()) return view;
  const OpenRound& round = open.begin()->second;
  view.open_round = round.round();
  view.reported = round.reported();
  view.missing = MissingOf(round, now);
  return view;
}

std::vector<MemberProgress> ClusterState::MissingOf(const OpenRound& round, absl::Time now) const {
  std::vector<MemberProgress> missing;
  for (WorkerId worker : round.Missing()) {
    missing.push_back(desks.at(worker).Progress(worker, NameOf(worker), now));
  }
  return missing;
}

// Weights of all rounds that are over. Without rosters any weights will do.
Round ClusterState::committed_round() const {
  if (!policy->uses_rosters()) return Round(0);
  const bool is_one_open = !open.empty() && !open.begin()->second.is_evaluation();
  return is_one_open ? open.begin()->first : ledger.next_round();
}

int64_t ClusterState::rounds_done() const {
  if (policy->uses_rosters()) return committed_round().value();
  return ledger.next_round().value() - static_cast<int64_t>(open.size());
}

}  // namespace lodestar
