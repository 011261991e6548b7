// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/cluster_snapshot.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/coordinator/cluster_words.h"
#include "server/coordinator/verdict_words.h"

namespace lodestar::coordinator {
namespace {

// Workers whose life has ended are shown for kEndedShownFor. At most kMaxEndedShown of them are
// shown: those whose lives ended last.
constexpr absl::Duration kEndedShownFor = absl::Hours(1);
constexpr size_t kMaxEndedShown = 32;
constexpr int kMaxWaitingShown = 100;
constexpr size_t kMaxShutOutShown = 100;

// Returns the workers to show:
// - all members;
// - the first kMaxWaitingShown workers that have registered but not joined;
// - the last kMaxEndedShown workers whose lives have ended, if this was less than kEndedShownFor
//   ago.
// Sets `num_hidden` to the number of workers that were left out because of the two maximum numbers.
std::set<WorkerId> ChooseShown(const membership::MembershipTable& membership, absl::Time now,
                               int64_t* num_hidden) {
  std::set<WorkerId> shown;
  std::vector<const membership::WorkerRecord*> ended;
  int num_waiting = 0;
  for (const auto& [id, record] : membership.workers()) {
    if (record.is_member() || (record.is_alive() && ++num_waiting <= kMaxWaitingShown)) {
      shown.insert(id);
    } else if (!record.is_alive() && record.ended_at >= now - kEndedShownFor) {
      ended.push_back(&record);
    }
  }
  const size_t num_ended = std::min(ended.size(), kMaxEndedShown);
  std::partial_sort(ended.begin(), ended.begin() + num_ended, ended.end(),
                    [](const membership::WorkerRecord* a, const membership::WorkerRecord* b) {
                      return std::pair(a->ended_at, a->id) > std::pair(b->ended_at, b->id);
                    });
  for (size_t i = 0; i < num_ended; ++i) shown.insert(ended[i]->id);
  *num_hidden =
      std::max(0, num_waiting - kMaxWaitingShown) + static_cast<int64_t>(ended.size() - num_ended);
  return shown;
}

// Adds a line for each name that is shut out, unless `workers` already has a line with this name.
// Adds at most kMaxShutOutShown lines: for the names that were shut out last. Adds the number of
// the other names to `num_hidden`.
void ShowShutOut(const ClusterState& state, std::vector<WorkerSnapshot>& workers,
                 int64_t* num_hidden) {
  std::set<absl::string_view> names;
  for (const WorkerSnapshot& worker : workers) names.insert(worker.name);
  std::vector<WorkerSnapshot> lines;
  const faults::Quarantine::Memory& entries = state.faults.quarantine().memory();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (names.contains(entry->name)) continue;
    if (lines.size() == kMaxShutOutShown) {
      ++*num_hidden;
      continue;
    }
    WorkerSnapshot& line = lines.emplace_back();
    line.name = entry->name;
    line.state = "refused";
    line.reason = ShutOutText(*entry);
  }
  std::move(lines.rbegin(), lines.rend(), std::back_inserter(workers));
}

WorkerSnapshot TurnedAway(const membership::RecentRefusals::Refusal& refusal,
                          absl::string_view state, absl::Time now) {
  WorkerSnapshot worker;
  worker.name = refusal.name;
  worker.peer = refusal.peer;
  worker.state = std::string(state);
  worker.reason = refusal.reason;
  worker.ended_age = now - refusal.at;
  return worker;
}

WorkerSnapshot SnapshotOf(const ClusterState& state, const membership::WorkerRecord& record,
                          absl::Time now) {
  const membership::WorkerConnection& connection = state.membership.ConnectionOf(record.id);
  const stragglers::WorkerActivity& activity = state.stragglers.Of(record.id);
  const rounds::WorkerAssignment& assignment = state.rounds.Of(record.id);
  const rounds::WorkerAssignment::Memory& work = assignment.memory();
  WorkerSnapshot snapshot;
  snapshot.name = record.name;
  snapshot.worker = record.id;
  snapshot.incarnation = record.incarnation;
  snapshot.state = std::string(membership::WorkerStateName(record.state));
  snapshot.device = connection.memory().device;
  snapshot.peer = connection.peer();
  snapshot.path = connection.path();
  snapshot.round = work.last_granted;
  snapshot.rounds_completed = work.rounds_completed;
  snapshot.residuals_lost = work.residuals_lost;
  snapshot.start_to_contribution = work.start_to_contribution;
  snapshot.registration_to_contribution = work.registration_to_contribution;
  if (!record.is_alive()) {
    snapshot.reason = record.end_reason;
    snapshot.ended_age = now - record.ended_at;
    return snapshot;
  }
  snapshot.index = connection.memory().index;
  snapshot.lease_age = now - record.renewed_at;
  snapshot.activity = work.is_waiting ? "wait" : activity.activity();
  snapshot.push_bytes_per_second = activity.push_bytes_per_second(now);
  snapshot.pull_bytes_per_second = activity.pull_bytes_per_second(now);
  if (work.grant.has_value()) {
    const int64_t newest = state.rounds.ledger().next_round().value() - 1;
    snapshot.staleness = newest - work.last_granted;
  }
  const rounds::WorkerAssignment::Rates rates = assignment.RatesAt(now);
  snapshot.samples_per_second = rates.samples_per_second;
  snapshot.compute_share = rates.compute_share;
  snapshot.communication_share = rates.communication_share;
  snapshot.wait_share = rates.wait_share;
  snapshot.exposed_per_round = rates.exposed_per_round;
  return snapshot;
}

// Returns the lines of workers by ID, then those of the workers that were refused last, then those
// that are shut out.
std::vector<WorkerSnapshot> ShownWorkers(const ClusterState& state, absl::Time now,
                                         int64_t* num_hidden) {
  std::vector<WorkerSnapshot> refused;
  for (const auto& refusal : state.membership.Refused(now)) {
    refused.push_back(TurnedAway(refusal, "refused", now));
  }
  for (const auto& caller : state.membership.Callers(now)) {
    refused.push_back(TurnedAway(caller, "waiting", now));
  }
  std::set<std::string> refused_names;
  for (const WorkerSnapshot& worker : refused) refused_names.insert(worker.name);
  const std::set<WorkerId> shown = ChooseShown(state.membership.table(), now, num_hidden);
  std::vector<WorkerSnapshot> workers;
  for (const auto& [id, record] : state.membership.table().workers()) {
    // A worker that registered and was refused afterwards has one line, with the refusal.
    if (!shown.contains(id)) continue;
    if (!record.is_alive() && refused_names.contains(record.name)) continue;
    workers.push_back(SnapshotOf(state, record, now));
    if (const checkpoints::DataSetState* data = state.rounds.ledger().DataOf(id); data != nullptr) {
      workers.back().data = DataSnapshot{data->info.own_partition, data->info.fingerprint,
                                         data->info.num_train_samples,
                                         data->info.num_heldout_samples, rounds::EpochOf(*data)};
    }
  }
  std::move(refused.begin(), refused.end(), std::back_inserter(workers));
  ShowShutOut(state, workers, num_hidden);
  return workers;
}

// Says what the operator can do so that the wait ends. Empty means that the operator can only wait.
std::string WayOut(const ClusterState& state, absl::Time now) {
  if (!WaitingForServers(state, now).empty()) {
    if (!state.has_memory()) return "start it";
    return absl::StrCat(
        "if the server's process is gone, start it again; then the job ",
        state.shards.all_keep_journals() ? "continues from its journal, or " : "",
        "goes back to the ",
        state.checkpoints.tracker().last().has_value() ? "newest checkpoint" : "beginning");
  }
  if (!WaitingForJournals(state).empty()) {
    return "check the disk of the journal, and its replica if it has one";
  }
  const bool waits_for_round =
      (state.phase == CoordinatorPhase::kRunning || state.phase == CoordinatorPhase::kEvaluating) &&
      !state.rounds.open().empty();
  if (!waits_for_round) return "";
  return absl::StrCat(
      "a worker that is gone is dropped from the round after --lease=",
      absl::FormatDuration(state.config.lease),
      state.ending.is_stopping()
          ? absl::StrCat(
                ", and a worker that does not deliver the round is dropped after --stop_timeout=",
                absl::FormatDuration(state.config.stop_timeout))
          : "");
}

std::vector<RequestSnapshot> RequestsOf(const ClusterState& state, absl::Time now) {
  std::vector<RequestSnapshot> requests;
  if (state.ending.stop_requested_at().has_value()) {
    RequestSnapshot& stop = requests.emplace_back();
    stop.what = "stop";
    stop.reason = *state.ending.stop_reason();
    stop.age = now - *state.ending.stop_requested_at();
    stop.waiting_for = WaitingFor(state, now);
    stop.waiting_for_undated = WaitingFor(state, now, Ages::kLeftOut);
    stop.way_out = WayOut(state, now);
    if (!stop.way_out.empty() && !WaitingForServers(state, now).empty()) {
      stop.way_out +=
          ", and the stop is completed. To end the job without that server, send SIGTERM to the "
          "coordinator";
    }
  }
  if (const auto since = state.checkpoints.tracker().requested_at(); since.has_value()) {
    RequestSnapshot& checkpoint = requests.emplace_back();
    checkpoint.what = "checkpoint";
    checkpoint.age = now - *since;
    if (state.checkpoints.tracker().is_active()) {
      checkpoint.waiting_for = "waits for the servers to write the checkpoint";
      checkpoint.waiting_for_undated = checkpoint.waiting_for;
    } else {
      checkpoint.waiting_for = WaitingFor(state, now);
      checkpoint.waiting_for_undated = WaitingFor(state, now, Ages::kLeftOut);
      checkpoint.way_out = WayOut(state, now);
    }
  }
  return requests;
}

std::optional<CheckpointSnapshot> NewestCheckpoint(const checkpoints::CheckpointTracker& tracker,
                                                   absl::Time now) {
  const std::optional<checkpoints::PublishedCheckpoint>& last = tracker.last();
  if (!last.has_value()) return std::nullopt;
  return CheckpointSnapshot{last->path, last->round, now - tracker.last_at(), last->bytes,
                            tracker.last_write_time()};
}

}  // namespace

ClusterSnapshot SnapshotOf(const ClusterState& state, absl::Time now) {
  ClusterSnapshot snapshot;
  const checkpoints::LedgerState ledger = state.rounds.ledger().state();
  snapshot.job = state.model.job();
  snapshot.server_incarnation = state.shards.server_incarnation();
  snapshot.uptime = now - state.started_at;
  snapshot.state = std::string(StateName(state));
  snapshot.waiting_for = WaitingFor(state, now);
  snapshot.is_held_up =
      !WaitingForJournals(state).empty() ||
      (StateName(state) != kPaused && state.waits.IsTold(WaitingFor(state, now, Ages::kLeftOut)));
  snapshot.round = ledger.next_round;
  snapshot.total_rounds = state.rounds.ledger().total_rounds();
  snapshot.epoch = state.rounds.ledger().epoch();
  snapshot.samples = ledger.next_sample;
  snapshot.trained_samples = ledger.trained_samples;
  snapshot.exchange_choice = ExchangeText(state);
  snapshot.untrained_samples = state.rounds.UntrainedSamples(state.model.job());
  snapshot.learning_rate = state.rounds.ledger().LearningRate(
      Round(std::max<int64_t>(0, ledger.next_round - 1)), /*step=*/0);
  snapshot.rollbacks = state.faults.memory().rollbacks;
  snapshot.learning_rate_scale = state.faults.memory().learning_rate_scale;
  if (const std::optional<faults::Divergence>& last = state.faults.last_divergence();
      last.has_value()) {
    snapshot.divergence = DivergenceSnapshot{last->round, last->text, now - last->at};
  }
  if (state.ending.pause().has_value()) {
    snapshot.pause = PauseSnapshot{state.ending.pause()->reason, now - state.ending.pause()->since};
  }
  const auto open_rounds = static_cast<int64_t>(state.rounds.open().size());
  const rounds::JobProgress& progress = state.rounds.progress();
  snapshot.loss = progress.loss();
  snapshot.metrics = progress.metrics();
  snapshot.metrics_dropped = progress.metrics_dropped();
  snapshot.rounds_committed_short = progress.rounds_committed_short();
  const rounds::JobProgress::Pace pace = progress.PaceOf(
      // A trial of settings has no fixed number of rounds.
      {.remaining_rounds = state.model.tuning().is_measuring()
                               ? 0
                               : snapshot.total_rounds - ledger.next_round + open_rounds,
       .tokens_per_sample = state.rounds.ledger().tokens_per_sample(),
       .is_training = StateName(state) == kTraining},
      now);
  snapshot.samples_per_second = pace.samples_per_second;
  snapshot.tokens_per_second = pace.tokens_per_second;
  snapshot.eta = pace.eta;
  snapshot.view = state.membership.table().view();
  snapshot.workers = ShownWorkers(state, now, &snapshot.num_workers_not_shown);
  // Until the journals have been compared, what this process knows of a round may be out of date.
  if (!state.rounds.open().empty() && !state.is_comparing()) {
    const rounds::OpenRound& round = state.rounds.open().begin()->second;
    snapshot.open_round = OpenRoundSnapshot{round.round(), now - round.opened_at(), {}, {}};
    for (WorkerId worker : round.Arrived()) {
      snapshot.open_round->arrived.push_back(state.NameOf(worker));
    }
    const std::vector<stragglers::Stall> stalls =
        state.stragglers.Stalls(state.FactsOfStragglers(now), now);
    for (WorkerId worker : round.Missing()) {
      const bool delivers = state.stragglers.Of(worker).is_delivering();
      snapshot.open_round->missing.push_back({state.NameOf(worker), now - round.opened_at(),
                                              round.is_evaluation() ? "evaluation"
                                              : delivers            ? "acknowledgement"
                                                                    : "contribution",
                                              DropTime(state, stalls, worker, now) - now});
    }
  }
  for (size_t i = 0; i < state.shards.servers().size(); ++i) {
    const shards::ShardFleet::Server& server = state.shards.servers()[i];
    snapshot.shards.push_back({static_cast<int>(i), server.address,
                               std::string(shards::ServerStateName(server)),
                               state.model.map() == nullptr ? params::ElementRange{}
                                                            : state.model.map()->servers[i].range,
                               server.is_there() ? server.journal.replica : ""});
  }
  snapshot.last_checkpoint = NewestCheckpoint(state.checkpoints.tracker(), now);
  if (state.rounds.is_site()) snapshot.upstream = state.rounds.site().upstream();
  snapshot.resumed = state.model.resumed();
  snapshot.alarms = state.alarms.Snapshot(now);
  snapshot.requests = RequestsOf(state, now);
  if (state.model.layout().has_value()) {
    snapshot.num_parameters = static_cast<uint64_t>(state.model.layout()->num_elements());
    snapshot.layout_hash = state.model.layout()->hash();
  }
  return snapshot;
}

}  // namespace lodestar::coordinator
