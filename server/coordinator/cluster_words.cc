// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/cluster_words.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/job/robust_mean.h"
#include "common/plan/exchange_choice.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/time_text.h"

namespace lodestar::coordinator {
namespace {

constexpr absl::string_view kTraining = "training";
constexpr absl::string_view kPaused = "paused";
// Activity that a worker reports in its heartbeats while it cannot reach every server.
constexpr absl::string_view kNoPath = "no path";

// Workers whose life has ended are shown for kEndedShownFor. At most kMaxEndedShown of them are
// shown: those whose lives ended last.
constexpr absl::Duration kEndedShownFor = absl::Hours(1);
constexpr size_t kMaxEndedShown = 32;
constexpr int kMaxWaitingShown = 100;
constexpr size_t kMaxShutOutShown = 100;

constexpr absl::string_view kAway = "away";
constexpr absl::string_view kAnd = " and ";

// How long a wait lasts before the log reports it: usually kWaitPatience. kRoundPatience is for a
// round that no worker has handed in.
constexpr absl::Duration kWaitPatience = absl::Seconds(2);
constexpr absl::Duration kRoundPatience = absl::Minutes(1);

// Advice for two data sets that differ although they have the same numbers of samples.
constexpr absl::string_view kHowToCompareData =
    ". Both have the same number of samples, so compare `sha256sum *` of both folders. Files are "
    "read in the byte order of their names";

// Time between registration and joining after which a worker is reported. Usually the worker reads
// its data in less time.
constexpr absl::Duration kTimeToJoin = absl::Seconds(10);

absl::string_view ServerStateName(const shards::ShardFleet::Server& server) {
  if (server.is_away()) return kAway;
  switch (server.state) {
    case shards::ShardFleet::State::kMissing:
      return "missing";
    case shards::ShardFleet::State::kAttached:
      return "attached";
    case shards::ShardFleet::State::kLoading:
      return "loading";
    case shards::ShardFleet::State::kServing:
      return "serving";
  }
  return "unknown";
}

// Returns a text such as "shard 1 (missing for 3s)". If `age_at` is not set, the text has no
// duration.
std::string ShardText(int shard, absl::string_view state, absl::Time since,
                      std::optional<absl::Time> age_at) {
  return absl::StrCat("shard ", shard, " (", state,
                      age_at.has_value() ? " for " + DurationText(*age_at - since) : "", ")");
}

// Returns the ShardText() of each of these shards.
std::vector<std::string> ShardTexts(const ClusterState& state, const std::vector<int>& shards,
                                    std::optional<absl::Time> age_at) {
  std::vector<std::string> texts;
  for (const int shard : shards) {
    const shards::ShardFleet::Server& server = state.shards.servers()[shard];
    texts.push_back(ShardText(shard, ServerStateName(server), server.since, age_at));
  }
  return texts;
}

// Says where the coordinator's journal ends, such as "the coordinator's journal
// run/journal/coordinator ends with record 812, before round 302".
std::string JournalEndText(const shards::JournalFacts& facts, std::optional<Round> next_round) {
  if (facts.folder.empty()) return "this server keeps no journal (--durability=checkpoint)";
  if (!facts.damage.empty()) return facts.damage;
  const std::string journal = absl::StrCat("the coordinator's journal ", facts.folder);
  if (facts.end.number == 0) return absl::StrCat(journal, " is empty");
  return absl::StrCat(
      journal, " ends with record ", facts.end.number,
      next_round.has_value() ? absl::StrCat(", before round ", next_round->value()) : "");
}

std::string LaterText(const shards::JournalFacts& facts, const shards::LaterKnowledge& later) {
  const bool is_damaged = !facts.damage.empty();
  const std::string round = later.round < 0 ? "" : absl::StrCat(", of round ", later.round);
  const std::string shard = absl::StrCat("shard ", later.shard);
  const std::string checkpoint =
      facts.newest.has_value() ? absl::StrCat("checkpoint ", facts.newest->path) : "";
  switch (later.kind) {
    case shards::LaterKnowledge::Kind::kShardRecord:
      return absl::StrCat(shard, " already knows record ", later.record, round);
    case shards::LaterKnowledge::Kind::kShardOtherJournal:
      return absl::StrCat(shard, " already knows record ", later.record,
                          is_damaged ? "" : " of another journal", round);
    case shards::LaterKnowledge::Kind::kShardRound:
      return absl::StrCat(shard, " has received contributions to round ", later.round);
    case shards::LaterKnowledge::Kind::kCheckpointRecord:
      return absl::StrCat(checkpoint, " was made after record ", later.record, round);
    case shards::LaterKnowledge::Kind::kCheckpointOtherJournal:
      return absl::StrCat(checkpoint, " says that round ", later.round, " and later rounds are in ",
                          is_damaged ? "the" : "another", " journal");
    case shards::LaterKnowledge::Kind::kMayBeInDamaged:
      return "no checkpoint is known to have all rounds of that journal";
  }
  return "";
}

std::string Held(const sync::Decision& decision) {
  return decision.action == sync::Action::kApply ? "" : decision.reason;
}

bool OnlyWaits(const stragglers::WorkerActivity& activity) {
  if (activity.pushes().keeps_space()) return false;
  return activity.pushes().is_held() ||
         (activity.is_delivering() && !activity.path_stall().has_value());
}

// Returns the missing workers of a round that the other workers really wait for. Leaves out a
// missing worker that only waits itself:
// - A server holds back its pushes.
// - It delivers its contribution, and its transfers do not stand still. Sums have a fixed order, so
//   it may wait until contributions of others are summed.
// A worker that occupies space that others wait for is never left out. If all missing workers only
// wait themselves, returns all of them.
std::vector<WorkerId> Awaited(const rounds::OpenRound& round,
                              const stragglers::StragglerDetector& stragglers) {
  const std::vector<WorkerId> missing = round.Missing();
  std::vector<WorkerId> awaited;
  for (WorkerId worker : missing) {
    if (!OnlyWaits(stragglers.Of(worker))) awaited.push_back(worker);
  }
  return awaited.empty() ? missing : awaited;
}

// Returns a text such as "of bucket 3, 65540 of 1048576 bytes have come to shard 0".
std::string PushText(const stragglers::MemberPushes::Unfinished& push) {
  return absl::StrCat("shard ", push.shard, " has received ", push.received_bytes, " of ",
                      push.total_bytes, " bytes of bucket ", push.bucket);
}

// Returns the time at which this member is dropped if it makes no progress until then.
// InfiniteFuture() means that it is not dropped.
absl::Time DropTime(const ClusterState& state, absl::Span<const stragglers::Stall> stalls,
                    WorkerId worker, absl::Time now) {
  const auto stall = std::lower_bound(
      stalls.begin(), stalls.end(), worker,
      [](const stragglers::Stall& one, WorkerId wanted) { return one.worker < wanted; });
  const bool is_stalled = stall != stalls.end() && stall->worker == worker;
  absl::Time until = is_stalled ? stall->until : absl::InfiniteFuture();
  // A heartbeat comes every third of a lease. If the newest one is older than half a lease, the
  // worker's life may end with its lease.
  const membership::WorkerRecord* const record = state.membership.table().Find(worker);
  const absl::Duration lease = state.config.lease;
  if (record != nullptr && now - record->renewed_at > lease / 2) {
    until = std::min(until, record->renewed_at + lease);
  }
  return std::min(until, state.ending.drop_missing_at());
}

// Returns the time until the last of these workers is dropped, such as ", at most 4m20s more".
// Empty means that one of them is never dropped, or that the time is over.
std::string TimeLeft(const ClusterState& state, absl::Span<const WorkerId> workers,
                     absl::Time now) {
  const std::vector<stragglers::Stall> stalls =
      state.stragglers.Stalls(state.FactsOfStragglers(now), now);
  absl::Time last = absl::InfinitePast();
  for (WorkerId worker : workers) last = std::max(last, DropTime(state, stalls, worker, now));
  if (last == absl::InfiniteFuture() || last <= now) return "";
  return absl::StrCat(", at most ", DurationText(last - now), " more");
}

// Returns a text such as "no bytes to shard 1 at host:port for 12s". Empty means that the worker
// reports no stall of its path. If `age_at` is not set, the text has no duration.
std::string PathStallText(const ClusterState& state, WorkerId worker,
                          std::optional<absl::Time> age_at) {
  const stragglers::WorkerActivity& activity = state.stragglers.Of(worker);
  if (!activity.path_stall().has_value()) return "";
  const auto& [shard, since] = *activity.path_stall();
  return absl::StrCat("no bytes ", activity.is_pulling() ? "from" : "to", " shard ", shard, " at ",
                      state.shards.servers()[shard].address,
                      age_at.has_value() ? " for " + DurationText(*age_at - since) : "");
}

std::string PathStallsText(const ClusterState& state, std::optional<absl::Time> age_at) {
  std::string text;
  for (const auto& [number, round] : state.rounds.open()) {
    for (WorkerId worker : round.Missing()) {
      const std::string what = PathStallText(state, worker, age_at);
      if (!what.empty()) absl::StrAppend(&text, "; worker ", state.NameOf(worker), ": ", what);
    }
  }
  if (!text.empty()) {
    absl::StrAppend(&text,
                    ". If a worker does not reach an address, start the server of that address "
                    "with --advertise=HOST:PORT. If only large messages are lost, run lodestar "
                    "doctor on the worker's machine; it checks the MTU");
  }
  return text;
}

// Names the registered workers that cannot reach every server, and the addresses of the servers.
// Empty means that there are no such workers.
std::string WithoutPath(const ClusterState& state) {
  std::vector<std::string> names;
  for (const auto& [id, record] : state.membership.table().workers()) {
    if (record.state != membership::WorkerState::kRegistered) continue;
    if (state.stragglers.Of(id).activity() == kNoPath) names.push_back(record.name);
  }
  if (names.empty()) return "";
  const std::string addresses =
      absl::StrJoin(state.shards.servers(), ", ",
                    [](std::string* out, const auto& server) { out->append(server.address); });
  return absl::StrCat("; ", absl::StrJoin(names, ", "), " cannot reach every server of ", addresses,
                      ": start the server that ", names.size() == 1 ? "it does" : "they do",
                      " not reach with --advertise=HOST:PORT");
}

// Says which workers registered more than kTimeToJoin ago and have not joined, such as "; worker
// 'a' has registered 40s ago and has not joined: ...". Empty means that there are no such workers.
std::string NotJoined(const ClusterState& state, absl::Time now) {
  std::string text;
  for (const auto& [id, record] : state.membership.table().workers()) {
    if (record.state != membership::WorkerState::kRegistered) continue;
    const auto registered_at = state.rounds.Of(id).memory().process_registered_at;
    if (!registered_at.has_value() || now - *registered_at < kTimeToJoin) continue;
    absl::StrAppend(&text, text.empty() ? "; " : ", ", "worker '", record.name, "' has registered ",
                    DurationText(now - *registered_at), " ago and has not joined");
  }
  if (text.empty()) return text;
  return absl::StrCat(
      text,
      ". Look at the end of the worker's log. If the log says that a server did not answer, run "
      "`lodestar doctor` of the Python wheel on the worker's machine; it tests large messages");
}

// Returns a text about all pushes of members that occupy space that others wait for. Example: ";
// worker a keeps space of shard 0 that others wait for: of bucket 3, ...".
std::string SpaceKept(const ClusterState& state, std::optional<absl::Time> age_at) {
  std::string text;
  for (const membership::WorkerRecord* member : state.membership.table().Members()) {
    for (const auto& push : state.stragglers.Of(member->id).pushes().unfinished()) {
      if (!push.others_wait) continue;
      absl::StrAppend(&text, "; worker ", member->name,
                      " has unfinished contributions that fill the space of shard ", push.shard,
                      ", and other workers wait for it");
      if (!age_at.has_value()) continue;
      absl::StrAppend(&text, ": ", PushText(push), " in ", DurationText(*age_at - push.since));
    }
  }
  return text;
}

// Returns the longest time for which a member has occupied space that others wait for. Zero means
// that no member does so.
absl::Duration KeepsSpaceFor(const ClusterState& state, absl::Time now) {
  absl::Duration longest;
  for (const membership::WorkerRecord* member : state.membership.table().Members()) {
    for (const auto& push : state.stragglers.Of(member->id).pushes().unfinished()) {
      if (push.others_wait) longest = std::max(longest, now - push.space_kept_since);
    }
  }
  return longest;
}

// Names the members that the cluster waits for. If no round is open, these are all members, which
// do not ask for work. Otherwise these are the members without a report of an open round. Empty
// means that the cluster does not wait for members.
std::string WaitingForMembers(const ClusterState& state, absl::Time now,
                              std::optional<absl::Time> age_at) {
  std::vector<std::string> names;
  if (state.rounds.open().empty()) {
    for (const membership::WorkerRecord* member : state.membership.table().Members())
      names.push_back(member->name);
    if (names.empty()) return "";
    return absl::StrCat("waits for ", absl::StrJoin(names, ", "), " to ask for work");
  }
  absl::Time newest = absl::InfinitePast();
  for (const auto& [number, round] : state.rounds.open()) {
    newest = std::max(newest, round.opened_at());
    for (WorkerId worker : round.Missing()) names.push_back(state.NameOf(worker));
  }
  // If the newest round was opened a short time ago, the missing members are only slow. They are
  // not reported, unless they have occupied space that others wait for for longer than a lease.
  if (now - newest <= std::max(state.config.lease, 2 * state.rounds.progress().usual_round())) {
    if (KeepsSpaceFor(state, now) <= state.config.lease) return "";
    return std::string(absl::StripPrefix(SpaceKept(state, age_at), "; "));
  }
  return absl::StrCat("waits for ", absl::StrJoin(names, ", "), " to deliver a round",
                      age_at.has_value() ? ", for " + DurationText(*age_at - newest) : "",
                      PathStallsText(state, age_at), SpaceKept(state, age_at));
}

// If a site has enough members and no order, says what it waits for. Otherwise returns an empty
// text.
std::string WaitingForUpstream(const ClusterState& state, const rounds::ClusterView& view,
                               std::optional<absl::Time> age_at) {
  if (!state.rounds.is_site() || state.rounds.site().waiting() != nullptr) return "";
  if (sync::AwaitMembers(view.Facts()).action != sync::Action::kApply) return "";
  const rounds::SiteCourse& site = state.rounds.site();
  return absl::StrCat(
      "waits for upstream ", site.upstream(), site.told().empty() ? "" : ": ", site.told(),
      age_at.has_value() ? ", for " + DurationText(*age_at - site.told_since()) : "");
}

std::string WaitingForExit(const ClusterState& state) {
  if (state.ending.exit_untold().empty()) {
    if (!state.rounds.is_site() || state.rounds.site().told().empty()) return "";
    return absl::StrCat("leaves upstream ", state.rounds.site().upstream(), ": ",
                        state.rounds.site().told());
  }
  return absl::StrCat(
      "waits for the server of shard ", absl::StrJoin(state.ending.exit_untold(), " and shard "),
      " to hear that the job is over; if that server does not answer, end its process yourself");
}

std::string WaitingForLeave(const ClusterState& state, absl::Time now) {
  if (state.ending.should_exit()) return WaitingForExit(state);
  if (const std::vector<membership::RecentRefusals::Refusal> callers =
          state.membership.Callers(now);
      state.ends() && !callers.empty()) {
    return absl::StrCat(
        "waits for ",
        absl::StrJoin(callers, ", ",
                      [](std::string* out, const membership::RecentRefusals::Refusal& caller) {
                        absl::StrAppend(out, caller.name);
                      }),
        " to call again and learn that the job is over");
  }
  const std::vector<std::string> returning = state.Returning(now);
  if (!returning.empty()) {
    return absl::StrCat("waits for ", absl::StrJoin(returning, ", "),
                        " to come back, because they may not know that the job is over");
  }
  if (!state.ends()) return "";
  if (state.awaits_strangers(now)) {
    return "waits for workers of an earlier server to come back, because they may not know that "
           "the job is over";
  }
  const std::vector<std::string> names = state.Present();
  return names.empty() ? "" : absl::StrCat("waits for ", absl::StrJoin(names, ", "), " to leave");
}

std::string WaitingForLastSave(const ClusterState& state, absl::Time now, Ages ages) {
  const checkpoints::LastSave& last_save = state.checkpoints.last_save();
  if (!last_save.is_under_way()) return "";
  if (state.checkpoints.tracker().is_active() || last_save.error().ok()) {
    return "waits for the last checkpoint to be written";
  }
  const absl::Duration pause = std::max(last_save.next_try() - now, absl::ZeroDuration());
  return absl::StrCat("the last checkpoint failed and is tried again",
                      ages == Ages::kShown ? " in " + DurationText(pause) : "", ": ",
                      last_save.error().message());
}

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
      "a worker that is gone leaves the round after --lease=",
      absl::FormatDuration(state.config.lease),
      state.ending.is_stopping()
          ? absl::StrCat(", and every worker that holds it up after --stop_timeout=",
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

// Returns a text to append to a number of rounds, such as ", 3 of them without a contribution".
// Empty means that every round had a contribution.
std::string WastedText(const ClusterState& state) {
  const int64_t lost = state.rounds.ledger().lost_rounds();
  return lost == 0 ? "" : absl::StrCat(", ", lost, " of them without a contribution");
}

std::optional<CheckpointSnapshot> NewestCheckpoint(const checkpoints::CheckpointTracker& tracker,
                                                   absl::Time now) {
  const std::optional<checkpoints::PublishedCheckpoint>& last = tracker.last();
  if (!last.has_value()) return std::nullopt;
  return CheckpointSnapshot{last->path, last->round, now - tracker.last_at(), last->bytes,
                            tracker.last_write_time()};
}

// Returns a text such as "7 of 20 rounds".
std::string RoundsText(const ClusterState& state) {
  return absl::StrCat(state.rounds.rounds_done(), " of ", state.rounds.ledger().total_rounds(),
                      " rounds", WastedText(state));
}

std::string NotWaitedForText(const ClusterState& state) {
  if (state.ending.not_waited_for().empty()) return "";
  return absl::StrCat(", and did not wait longer than --stop_timeout=",
                      absl::FormatDuration(state.config.stop_timeout), " for ",
                      absl::StrJoin(state.ending.not_waited_for(), ", ",
                                    [](std::string* out, const ending::MissedReport& missed) {
                                      absl::StrAppend(out, missed.worker, " (round ",
                                                      missed.round.value(), ")");
                                    }));
}

// Returns text about the forecast loss of a choice. The text says by how many percentage points the
// loss exceeds kMostLossPercent, or that no forecast is known. Otherwise returns only a separator.
std::string MissText(const plan::LossEstimate& loss) {
  if (!loss.percent.has_value()) return "; its effect on the loss is not known; ";
  if (*loss.percent <= plan::kMostLossPercent) return "; ";
  return absl::StrFormat(
      "; its loss is estimated %.1f %% higher than with sync, %.1f points above the limit of %.1f "
      "%%; ",
      *loss.percent, *loss.percent - plan::kMostLossPercent, plan::kMostLossPercent);
}

std::string RateText(double bytes_per_second) {
  return bytes_per_second == plan::NetworkPath::kNoLimit
             ? "as fast as memory"
             : absl::StrFormat("%.3g Mbit/s", bytes_per_second * 8e-6);
}

std::string FactsText(const plan::ExchangeFacts& facts) {
  const bool shares_link = facts.path.server_down != plan::NetworkPath::kNoLimit;
  return absl::StrFormat(
      "a step takes %.3g ms, workers send %s and receive %s%s, the round trip is %.3g ms",
      absl::ToDoubleMilliseconds(facts.step), RateText(facts.path.worker_up),
      RateText(facts.path.worker_down), shares_link ? " (all workers together, not each)" : "",
      absl::ToDoubleMilliseconds(facts.path.round_trip));
}

// Returns the fingerprint and the sizes of a data set.
std::string DataText(const messages::DatasetInfo& data) {
  return absl::StrCat(data.fingerprint.empty() ? "" : "fingerprint ", data.fingerprint,
                      data.fingerprint.empty() ? "" : ", ", data.num_train_samples,
                      " training and ", data.num_heldout_samples, " held-out samples of ",
                      data.tokens_per_sample, " tokens");
}

bool HaveEqualCounts(const messages::DatasetInfo& a, const messages::DatasetInfo& b) {
  return a.num_train_samples == b.num_train_samples &&
         a.num_heldout_samples == b.num_heldout_samples &&
         a.tokens_per_sample == b.tokens_per_sample;
}

}  // namespace

std::string WaitingForServers(const ClusterState& state, absl::Time now, Ages ages) {
  const std::optional<absl::Time> age_at = ages == Ages::kShown ? std::optional(now) : std::nullopt;
  std::vector<std::string> texts =
      ShardTexts(state, state.shards.Lacking(shards::ShardFleet::State::kAttached), age_at);
  for (const int shard : state.shards.Away()) {
    const absl::Time since = *state.shards.servers()[shard].away_since;
    texts.push_back(ShardText(shard, kAway, since, age_at));
  }
  return texts.empty() ? "" : absl::StrCat("waits for the server of ", absl::StrJoin(texts, kAnd));
}

std::string WaitingForJournals(const ClusterState& state, Ages ages) {
  std::vector<std::string> troubles;
  const std::vector<shards::ShardFleet::Server>& servers = state.shards.servers();
  for (const int shard : state.shards.WithJournalTrouble()) {
    const std::string owner = servers.size() == 1 ? "" : absl::StrCat(" of shard ", shard);
    // With Ages::kLeftOut, the text must not change while the trouble lasts. The reason may change,
    // so it is left out.
    troubles.push_back(absl::StrCat("the journal", owner,
                                    ages == Ages::kShown
                                        ? " cannot be written: " + servers[shard].journal.trouble
                                        : " cannot be written"));
  }
  return absl::StrJoin(troubles, kAnd);
}

std::string WaitingFor(const ClusterState& state, absl::Time now, Ages ages) {
  const bool has_ages = ages == Ages::kShown;
  const std::optional<absl::Time> age_at = has_ages ? std::optional(now) : std::nullopt;
  if (state.comparison.loss.has_value() && !state.ending.should_exit()) {
    const shards::JournalLoss& loss = *state.comparison.loss;
    const bool is_damaged = !state.config.journal.damage.empty();
    return absl::StrCat(
        "waits for the coordinator's journal, which ",
        is_damaged ? "is damaged: " : "is older than before or missing: ",
        JournalLossReason(state.config.journal, loss),
        is_damaged ? ". Replace it by an undamaged copy" : ". Bring the newer journal back",
        ", or start this server with --accept_loss=", loss.round.value());
  }
  const bool awaits_servers =
      state.phase == CoordinatorPhase::kAwaitingShards ||
      (state.is_shard_away() && state.has_memory() && !state.ending.should_exit());
  const std::string servers = awaits_servers ? WaitingForServers(state, now, ages) : "";
  // If a journal cannot be written, the servers acknowledge nothing. Missing workers are then only
  // a consequence.
  const std::string journals =
      state.phase == CoordinatorPhase::kFailed ? "" : WaitingForJournals(state, ages);
  if (awaits_servers || !journals.empty()) {
    return absl::StrCat(journals, journals.empty() || servers.empty() ? "" : "; ", servers);
  }
  switch (state.phase) {
    case CoordinatorPhase::kRestoring:
      return "looks for the newest undamaged checkpoint";
    case CoordinatorPhase::kAwaitingLayout:
      return "waits for a program that gives the layout of its model";
    case CoordinatorPhase::kLoading:
      return absl::StrCat(
          "waits for weights to be loaded by ",
          absl::StrJoin(
              ShardTexts(state, state.shards.Lacking(shards::ShardFleet::State::kServing), age_at),
              kAnd));
    case CoordinatorPhase::kSaving:
      return "waits for the last checkpoint to be written";
    case CoordinatorPhase::kDone: {
      const std::string save = WaitingForLastSave(state, now, ages);
      return save.empty() ? WaitingForLeave(state, now) : save;
    }
    case CoordinatorPhase::kFailed: {
      const std::string leave = WaitingForLeave(state, now);
      return absl::StrCat(state.ending.failure().message(), leave.empty() ? "" : "; ", leave);
    }
    case CoordinatorPhase::kAwaitingShards:
    case CoordinatorPhase::kRunning:
    case CoordinatorPhase::kEvaluating:
      break;
  }
  if (state.model.supply().is_awaited()) {
    return state.model.supply().supplier().has_value()
               ? absl::StrCat("waits for ", state.NameOf(state.model.supply().supplier()->worker),
                              " to supply the initial weights",
                              age_at.has_value()
                                  ? TimeLeft(state, {state.model.supply().supplier()->worker}, now)
                                  : "")
               : "waits for a program that supplies the initial weights";
  }
  const bool has_round = state.rounds.uses_rosters() ||
                         state.phase == CoordinatorPhase::kEvaluating ||
                         state.ending.is_stopping() || state.ending.is_work_held() ||
                         state.ending.is_paused() || state.rounds.ledger().is_exhausted();
  if (has_round && !state.rounds.open().empty()) {
    const rounds::OpenRound& round = state.rounds.open().begin()->second;
    const std::vector<WorkerId> awaited = Awaited(round, state.stragglers);
    std::vector<std::string> names;
    for (WorkerId worker : awaited) names.push_back(state.NameOf(worker));
    const absl::string_view evaluation =
        state.rounds.is_site() ? "the evaluation" : "the final evaluation";
    return absl::StrCat(round.is_evaluation() ? evaluation : "round ",
                        round.is_evaluation() ? "" : absl::StrCat(round.round().value()),
                        " waits for ", absl::StrJoin(names, ", "),
                        has_ages
                            ? absl::StrCat(", open for ", DurationText(now - round.opened_at()),
                                           TimeLeft(state, awaited, now))
                            : "",
                        PathStallsText(state, age_at), SpaceKept(state, age_at));
  }
  if (state.ending.is_work_held()) {
    const std::string save = WaitingForLastSave(state, now, ages);
    return absl::StrCat("no work is handed out: ", state.ending.hold_reason(),
                        save.empty() ? "" : "; ", save);
  }
  if (state.ending.is_paused()) return PauseText(state);
  if (state.phase == CoordinatorPhase::kEvaluating) {
    std::vector<std::string> names;
    for (WorkerId worker : state.rounds.LackingForEvaluation(state.RoundMembers())) {
      names.push_back(state.NameOf(worker));
    }
    return absl::StrCat("the final evaluation waits for ",
                        names.empty() ? "a worker" : absl::StrJoin(names, ", "));
  }
  const rounds::ClusterView view = state.View(now);
  if (std::string upstream = WaitingForUpstream(state, view, age_at); !upstream.empty()) {
    return upstream;
  }
  if (std::string held = Held(state.rounds.policy().OnOpening(view.Facts())); !held.empty()) {
    return absl::StrCat(held, WithoutPath(state), has_ages ? NotJoined(state, now) : "");
  }
  for (const sync::MemberProgress& member : view.members) {
    if (!member.waiting) continue;
    std::string held = Held(state.rounds.policy().OnGrant(member, view.Facts()));
    if (!held.empty()) return held + PathStallsText(state, age_at);
  }
  return WaitingForMembers(state, now, age_at);
}

std::string ExchangeChoiceText(const model::ExchangeTuning::Choice& choice) {
  const plan::ExchangeOption& option = choice.option;
  return absl::StrCat(option.name, " (", absl::StrJoin(plan::ExchangeFlags(option.job), " "),
                      "): ", FactsText(choice.facts), "; by the estimate, workers compute for ",
                      absl::StrFormat("%.1f", 100.0 * option.forecast.utilisation()),
                      " % of the time", MissText(option.loss), choice.reason);
}

std::string ExchangeText(const ClusterState& state) {
  const job::JobSpec& job = state.model.job();
  switch (state.model.tuning().origin()) {
    case model::ExchangeOrigin::kFlags:
      return "";
    case model::ExchangeOrigin::kTrial: {
      const int64_t missing =
          job.min_workers - static_cast<int64_t>(state.membership.table().Members().size());
      return absl::StrCat(
          "measures the time of steps and the network; then the job begins again with its first "
          "weights",
          missing > 0
              ? absl::StrCat("; waits for ", missing, " more ", missing == 1 ? "worker" : "workers",
                             " to measure (--min_workers=", job.min_workers, ")")
              : "");
    }
    case model::ExchangeOrigin::kChoice:
      return ExchangeChoiceText(state.model.tuning().choice());
    case model::ExchangeOrigin::kCheckpoint:
    case model::ExchangeOrigin::kJournal:
      break;
  }
  const bool is_journal = state.model.tuning().origin() == model::ExchangeOrigin::kJournal;
  return absl::StrCat("the exchange settings were taken from the ",
                      is_journal ? "journal" : "checkpoint",
                      " and the flags: ", absl::StrJoin(plan::ExchangeFlags(job), " "));
}

std::string PauseText(const ClusterState& state) {
  return absl::StrCat("paused: ", state.ending.pause()->reason, "; psctl resume continues the job");
}

std::string ShutOutText(const faults::Quarantine::Entry& entry) {
  return absl::StrCat("worker '", entry.name, "' is shut out",
                      entry.is_identity ? " with all names of its certificate: " : ": ",
                      entry.reason,
                      entry.is_by_operator ? "" : "; check its device, its memory and its data",
                      "; psctl readmit ", entry.name, " lets it join again");
}

std::string LearningRateHistoryText(const faults::FaultPolicy::Memory& faults) {
  // `scale_by_operators` is the product of several changes. If they cancel out, a rounding error
  // may remain.
  const bool has_order = std::abs(faults.scale_by_operators - 1.0) > 1e-9;
  std::vector<std::string> parts;
  if (faults.rollbacks > 0) {
    parts.push_back(absl::StrCat("after ", faults.rollbacks,
                                 faults.rollbacks == 1 ? " rollback" : " rollbacks"));
  }
  if (has_order) {
    parts.push_back(absl::StrFormat("with the learning rate times %.4g by operators",
                                    faults.scale_by_operators));
  }
  if (parts.empty()) return "";
  return absl::StrCat(" (", absl::StrJoin(parts, ", "), ")");
}

std::string NotFiniteReason(const ClusterState& state, WorkerId worker, absl::string_view text) {
  const int times = state.faults.times_not_finite(worker);
  const int limit = state.faults.limits().nonfinite_limit;
  return absl::StrCat(
      text, "; ", times, " of ", limit, limit == 1 ? " time" : " times",
      " in a row that --nonfinite_limit lets a worker send NaN or Inf",
      times < limit ? "" : ". The worker is refused until its process is started again");
}

std::string StallText(const ClusterState& state, const stragglers::Stall& stall, absl::Time now) {
  const std::string age = DurationText(now - stall.since);
  const std::string timeout = absl::FormatDuration(state.config.round_timeout);
  switch (stall.kind) {
    case stragglers::Stall::Kind::kPath: {
      const std::string what = PathStallText(state, stall.worker, now);
      return what.empty() ? "it receives no byte of the weights" : what;
    }
    case stragglers::Stall::Kind::kWeights:
      return absl::StrCat("it should supply the initial weights, and has not done so for ", age);
    case stragglers::Stall::Kind::kAsking:
      return absl::StrCat("it has not asked for work for ", age);
    case stragglers::Stall::Kind::kReport:
      return absl::StrCat(
          "it got round ", stall.round->value(), " ", age, " ago and has not delivered it; ",
          stall.usually.has_value() ? absl::StrCat("such a round usually takes it ",
                                                   absl::FormatDuration(absl::Trunc(
                                                       *stall.usually, absl::Milliseconds(1))))
                                    : "it is its first such round");
    case stragglers::Stall::Kind::kPush:
      return absl::StrCat(
          PushText(*stall.push), " in ", age,
          stall.push->others_wait ? ", and other workers wait for that space" : "",
          "; a contribution must be sent fast enough to be complete within --round_timeout=",
          timeout);
    case stragglers::Stall::Kind::kSilentPush:
      return absl::StrCat(PushText(*stall.push), ", and nothing more for ", age,
                          " while the server was ready to read; a contribution that has begun must "
                          "continue within --lease=",
                          absl::FormatDuration(state.config.lease));
    case stragglers::Stall::Kind::kSpace:
      return absl::StrCat("for ", age, " other workers have waited for space of shard ",
                          stall.push->shard, " that its unfinished contributions fill (",
                          PushText(*stall.push),
                          "); they must be complete within --round_timeout=", timeout);
  }
  return "";
}

std::string HeldUpText(const ClusterState& state, const stragglers::Stall& stall,
                       absl::string_view what) {
  const std::string worker = absl::StrCat("worker '", state.NameOf(stall.worker), "' held up ");
  if (stall.kind == stragglers::Stall::Kind::kPath) {
    return absl::StrCat(worker, "rounds: ", what,
                        ". It is dropped, and joins again once it reaches every server. Check its "
                        "network path to the servers");
  }
  return absl::StrCat(
      worker, "other workers: ", what, ". It is dropped, and may join again in ",
      DurationText(absl::Ceil(*stall.rest, absl::Seconds(1))),
      stall.push.has_value()
          ? ". Check its network path to the servers, and that you know this process"
          : absl::StrCat(" with more time, up to --round_timeout=",
                         absl::FormatDuration(state.config.round_timeout),
                         ". Check whether its process hangs"),
      ". If the worker is only slow, raise the flag that is named here");
}

absl::Duration WaitPatience(const ClusterState& state) {
  // A site that has no order usually waits for the other workers of the servers upstream. This may
  // take as long as a lease.
  const bool is_upstreams_turn = state.rounds.is_site() && state.rounds.site().waiting() == nullptr;
  if (state.rounds.open().empty() && is_upstreams_turn)
    return std::max(state.config.lease, kWaitPatience);
  if (state.rounds.open().empty() || !WaitingForJournals(state).empty()) return kWaitPatience;
  // A worker reports a stall of its path only after the stall has lasted for some time. So the log
  // need not wait much longer.
  if (!PathStallsText(state, /*age_at=*/std::nullopt).empty()) return kWaitPatience;
  // If some workers have handed in the round, the others hold it up. If no worker has, all may
  // still compute, which may take long.
  const bool has_stragglers = !state.rounds.open().begin()->second.Arrived().empty();
  return std::max({state.config.lease, has_stragglers ? kWaitPatience : kRoundPatience,
                   2 * state.rounds.progress().usual_round()});
}

std::string PendingReason(const ClusterState& state, WorkerId worker, absl::Time now) {
  if (state.is_shard_away() || state.phase != CoordinatorPhase::kRunning ||
      state.ending.is_stopping() || state.ending.is_work_held() || state.ending.is_paused() ||
      state.rounds.ledger().is_exhausted() || state.model.supply().is_awaited() ||
      !WaitingForJournals(state).empty()) {
    return WaitingFor(state, now, Ages::kLeftOut);
  }
  const rounds::ClusterView view = state.View(now);
  if (std::string upstream = WaitingForUpstream(state, view, std::nullopt); !upstream.empty()) {
    return upstream;
  }
  if (std::string held = Held(state.rounds.policy().OnOpening(view.Facts())); !held.empty())
    return held;
  auto self = std::find_if(view.members.begin(), view.members.end(),
                           [&](const sync::MemberProgress& m) { return m.worker == worker; });
  if (self != view.members.end()) {
    if (std::string held = Held(state.rounds.policy().OnGrant(*self, view.Facts()));
        !held.empty()) {
      return held;
    }
  }
  return absl::StrCat(
      "there are more workers than --global_batch_size=", state.model.job().global_batch_size,
      " has samples; this worker waits for another to leave");
}

absl::Status CheckKnowsOrders(const ClusterState& state, absl::Time now) {
  const bool is_known = state.shards.server_incarnation() != 0 && !state.is_comparing();
  if (is_known || !state.ending.failure().ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("not ready: ", WaitingFor(state, now), "; the call is retried automatically"));
}

absl::Status CheckCompared(const ClusterState& state, absl::Time now) {
  const bool is_over =
      state.phase == CoordinatorPhase::kDone || state.phase == CoordinatorPhase::kFailed;
  if (!state.is_comparing() || is_over) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("not ready: ", WaitingFor(state, now), "; the call is retried automatically"));
}

absl::Status CheckReady(const ClusterState& state, absl::Time now) {
  if (state.is_ready()) return absl::OkStatus();
  if (state.phase == CoordinatorPhase::kDone) {
    return absl::UnavailableError("the job was stopped before it began");
  }
  if (state.phase == CoordinatorPhase::kFailed) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has failed: ", state.ending.failure().message()));
  }
  return absl::UnavailableError(
      absl::StrCat("not ready: ", WaitingFor(state, now), "; the call is retried automatically"));
}

absl::Status CheckAllServing(const ClusterState& state, absl::Time now) {
  RETURN_IF_ERROR(CheckCompared(state, now));
  RETURN_IF_ERROR(CheckReady(state, now));
  if (state.shards.all_serving() && !state.is_shard_away()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("not ready: ", WaitingFor(state, now), "; the call is retried automatically"));
}

std::string UnsavedText(const ClusterState& state) {
  const std::optional<checkpoints::PublishedCheckpoint>& last = state.checkpoints.tracker().last();
  const int64_t begin = last.has_value() ? last->round.value() : 0;
  const int64_t end = state.rounds.ledger().next_round().value();
  if (end <= begin) return "";
  return absl::StrCat("rounds ", begin, " to ", end - 1, " are in no checkpoint",
                      last.has_value() ? absl::StrCat("; the newest is ", last->path)
                                       : ", because there is no checkpoint");
}

std::string SentBackText(const faults::Setback::Order& order, std::optional<int64_t> reached) {
  std::string to;
  if (!reached.has_value()) {
    to = absl::StrCat("its beginning, because there was no checkpoint of at most ",
                      order.most_rounds, " rounds");
  } else if (*reached < order.most_rounds) {
    to = absl::StrCat("round ", *reached, ", the newest checkpoint of at most ", order.most_rounds,
                      " rounds");
  } else if (*reached > order.most_rounds) {
    to = absl::StrCat("round ", *reached, ", although the order was for at most ",
                      order.most_rounds, " rounds");
  } else {
    to = absl::StrCat("round ", *reached);
  }
  return absl::StrCat("an operator sent the job back to ", to, " (", order.reason, ")");
}

std::string LostText(const ClusterState& state) {
  const int64_t begin = state.rounds.rounds_done();
  const std::optional<faults::Setback>& setback = state.faults.setback();
  if (!setback.has_value() || setback->rounds_done <= begin) return "";
  const int64_t last = setback->rounds_done - 1;
  return absl::StrCat(begin == last ? absl::StrCat("round ", begin, " was")
                                    : absl::StrCat("rounds ", begin, " to ", last, " were"),
                      " lost when ", setback->why);
}

std::optional<absl::StatusOr<JobOutcome>> EndingOf(const ClusterState& state) {
  const bool is_over =
      state.phase == CoordinatorPhase::kDone && state.checkpoints.last_save().outcome().has_value();
  if (!is_over && state.phase != CoordinatorPhase::kFailed) return std::nullopt;
  if (!state.ending.failure().ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has failed: ", state.ending.failure().message()));
  }
  const int64_t rounds = state.rounds.rounds_done();
  return JobOutcome{rounds < state.rounds.ledger().total_rounds()
                        ? absl::StrCat("stopped after ", RoundsText(state), NotWaitedForText(state))
                        : absl::StrCat("complete after all ", rounds, " rounds", WastedText(state)),
                    *state.checkpoints.last_save().outcome(), LostText(state)};
}

JobOutcome CutOffEndingOf(const ClusterState& state) {
  JobOutcome ending = {absl::StrCat("cut off after ", RoundsText(state)),
                       absl::FailedPreconditionError("nothing was done yet"), LostText(state)};
  if (const std::string unsaved = UnsavedText(state); !unsaved.empty()) {
    ending.saved =
        state.saves() ? absl::DataLossError(unsaved) : absl::FailedPreconditionError(unsaved);
  } else if (state.checkpoints.tracker().last().has_value()) {
    ending.saved = *state.checkpoints.tracker().last();
  }
  return ending;
}

absl::string_view StateName(const ClusterState& state) {
  const bool is_over =
      state.phase == CoordinatorPhase::kDone || state.phase == CoordinatorPhase::kFailed;
  if (state.is_comparing() && !is_over) {
    return state.comparison.loss.has_value() ? "journal_lost" : "waiting_for_servers";
  }
  const bool needs_servers = state.phase == CoordinatorPhase::kRunning ||
                             state.phase == CoordinatorPhase::kEvaluating ||
                             state.phase == CoordinatorPhase::kSaving;
  if (state.is_shard_away() && needs_servers) return "waiting_for_servers";
  if (needs_servers && !WaitingForJournals(state).empty()) return "waiting_for_journal";
  switch (state.phase) {
    case CoordinatorPhase::kAwaitingShards:
      return "waiting_for_servers";
    case CoordinatorPhase::kRestoring:
      return "restoring";
    case CoordinatorPhase::kAwaitingLayout:
      return "waiting_for_layout";
    case CoordinatorPhase::kLoading:
      return "loading";
    case CoordinatorPhase::kEvaluating:
      return state.ending.is_paused() && state.rounds.open().empty() ? kPaused : "evaluating";
    case CoordinatorPhase::kSaving:
      return "saving";
    case CoordinatorPhase::kDone:
      return state.ending.failure().ok() ? "done" : "diverged";
    case CoordinatorPhase::kFailed:
      return "failed";
    case CoordinatorPhase::kRunning:
      break;
  }
  if (state.ending.is_stopping()) return "stopping";
  if (!state.rounds.open().empty()) return kTraining;
  if (state.ending.is_paused()) return kPaused;
  return state.rounds.is_site() && state.rounds.site().waiting() == nullptr ? "waiting_for_upstream"
                                                                            : "waiting_for_workers";
}

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
                               std::string(ServerStateName(server)),
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

std::string ShardLossText(const ClusterState& state, const shards::ShardLoss& loss) {
  switch (loss.kind) {
    case shards::ShardLoss::Kind::kCutOff:
      return "lost its connection before it was told what to load";
    case shards::ShardLoss::Kind::kMissedAssignment:
      return "did not receive the order what to load";
    case shards::ShardLoss::Kind::kLacksRecords: {
      const std::string round =
          loss.highest_round < 0 ? "" : absl::StrCat(" (of round ", loss.highest_round, ")");
      return absl::StrCat("has a journal that ends with record ", loss.end, round,
                          ", although record ", loss.end_before,
                          " was already on disk; the job was at round ",
                          state.rounds.ledger().next_round().value());
    }
    case shards::ShardLoss::Kind::kStartedAnew:
      return "was started again";
    case shards::ShardLoss::Kind::kLeftJournal:
      return "was started again, and does not continue from the journal that it had";
    case shards::ShardLoss::Kind::kLostMemory:
      return "was started again and has lost its weights";
    case shards::ShardLoss::Kind::kCannotLoad:
      return "could not load its weights";
  }
  return "";
}

absl::Status AttachRefusal(const ClusterState& state, const shards::Attachment& attachment,
                           shards::AttachVerdict::Kind kind) {
  const std::vector<shards::ShardFleet::Server>& servers = state.shards.servers();
  switch (kind) {
    case shards::AttachVerdict::Kind::kDoesNotFit:
      return absl::InvalidArgumentError(absl::StrCat(
          "--shard=", attachment.shard, "/", attachment.num_shards,
          " does not fit this cluster of ", servers.size(),
          servers.size() == 1 ? " shard" : " shards", "; give every server the same number"));
    case shards::AttachVerdict::Kind::kFollowed:
      return FollowedStatus();
    case shards::AttachVerdict::Kind::kLate:
      return absl::AbortedError(
          "this call is from before the server loaded its present weights, and is ignored");
    case shards::AttachVerdict::Kind::kHeld:
      return absl::AlreadyExistsError(
          absl::StrCat("shard ", attachment.shard, " is held by the server at ",
                       servers[attachment.shard].address, " (",
                       ServerStateName(servers[attachment.shard]), "); stop one of the two"));
    case shards::AttachVerdict::Kind::kGoesOn:
    case shards::AttachVerdict::Kind::kTakes:
    case shards::AttachVerdict::Kind::kLoses:
    case shards::AttachVerdict::Kind::kLosesUntold:
      break;
  }
  return absl::OkStatus();
}

absl::Status FollowedStatus() {
  return absl::AbortedError(
      "another process has continued with the journal of this server; end this server");
}

std::string JournalLossReason(const shards::JournalFacts& facts, const shards::JournalLoss& loss) {
  return absl::StrCat(JournalEndText(facts, loss.next_round), ", and ",
                      absl::StrJoin(loss.later, kAnd, [&](std::string* out, const auto& later) {
                        out->append(LaterText(facts, later));
                      }));
}

std::string JournalLossText(const shards::JournalFacts& facts, const shards::JournalLoss& loss) {
  const std::string target = facts.newest.has_value()
                                 ? absl::StrCat("the newest checkpoint, ", facts.newest->path)
                                 : "the first weights, because there is no checkpoint";
  const absl::string_view remedy =
      facts.folder.empty()
          ? "Start this server with --durability=journal, and the --journal_dir that it had"
      : facts.damage.empty() ? "Bring the newer journal back (mount its disk, or restore the whole "
                               "folder), and start this server again"
                             : "End this server, replace the whole folder of the journal by an "
                               "undamaged copy, and start this server again";
  return absl::StrCat("THE COORDINATOR'S JOURNAL ",
                      facts.damage.empty() ? "IS OLDER than before, or missing" : "IS DAMAGED",
                      ": ", JournalLossReason(facts, loss),
                      ". The cluster waits, and nothing on disk is changed. ", remedy,
                      ". To lose the rounds since then and go back to ", target,
                      ", start it with --accept_loss=", loss.round.value());
}

absl::Status AcceptedOtherLoss(const shards::JournalFacts& facts, const shards::JournalLoss& loss) {
  return absl::FailedPreconditionError(
      absl::StrCat("--accept_loss=", facts.accepted_loss->value(),
                   " is not the number of this loss, which is round ", loss.round.value(), ": ",
                   JournalLossReason(facts, loss), ". Nothing was changed. Bring the ",
                   facts.damage.empty() ? "newer journal" : "undamaged journal",
                   " back, or give --accept_loss=", loss.round.value()));
}

std::string ReasonOfStop(int shard) {
  return shard == 0 ? "the coordinator was told to stop"
                    : absl::StrCat("the server of shard ", shard, " was told to stop");
}

absl::Status MemberRefusalStatus(const ClusterState& state,
                                 const std::optional<membership::MemberRefusal>& refusal) {
  if (!refusal.has_value()) return absl::OkStatus();
  switch (refusal->kind) {
    case membership::MemberRefusal::Kind::kNoRoom:
      return absl::UnavailableError(absl::StrCat(
          "the job has ", refusal->present,
          " workers, and --robust_mean=", job::RobustMeanText(state.model.job().robust_mean),
          " allows at most ", refusal->allowed, "; this worker joins when another has left"));
    case membership::MemberRefusal::Kind::kTooManyNames:
      return absl::UnavailableError(
          absl::StrCat("certificate '", refusal->subject, "' has ", refusal->present,
                       " workers here, and is now allowed ", refusal->allowed,
                       ". They have completed ", refusal->rounds_completed,
                       " rounds, and each completed round admits one more worker. The call is "
                       "retried automatically; give each machine a separate certificate"));
    case membership::MemberRefusal::Kind::kOtherFrozen:
      return absl::FailedPreconditionError(absl::StrCat(
          "frozen weights of this worker differ from those of worker '", refusal->subject,
          "'. Load the same frozen weights in all programs, for example from one checkpoint or "
          "with one seed, or train them. If they must differ, leave their hash out (Python: "
          "join(..., check_frozen=False))"));
  }
  return absl::OkStatus();
}

absl::Status ModelRefusalStatus(const ClusterState& state,
                                const std::optional<model::ModelRefusal>& refusal) {
  using Kind = model::ModelRefusal::Kind;
  if (!refusal.has_value()) return absl::OkStatus();
  const auto refuse_layout = [](const auto&... reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layout that this program gives is refused: ", reason...));
  };
  switch (refusal->kind) {
    case Kind::kEncoding: {
      const job::JobSpec& job = state.model.job();
      const absl::string_view flag = refusal->subject;
      const params::Encoding encoding =
          flag == "push_encoding" ? job.push_encoding : job.pull_encoding;
      return absl::FailedPreconditionError(
          absl::StrCat("this job has --", flag, "=", params::EncodingText(encoding),
                       ", but this program can only use ",
                       absl::StrJoin(refusal->known, ", ",
                                     [](std::string* out, params::Encoding::Kind one) {
                                       absl::StrAppend(out, params::EncodingKindName(one));
                                     }),
                       "; use a newer program, or start the job with --", flag, "=",
                       params::EncodingKindName(refusal->known.front())));
    }
    case Kind::kOtherLayout:
      return absl::InvalidArgumentError(refusal->cause.message());
    case Kind::kOtherTensors:
    case Kind::kShards:
      return refusal->cause;
    case Kind::kLayoutHash:
      return absl::FailedPreconditionError(absl::StrCat(
          "this worker's model has layout hash ", refusal->subject, ", but the job's is ",
          state.model.layout()->hash(), "; build the model from the job's settings"));
    case Kind::kLacksLayout:
      return absl::UnavailableError(
          "not ready: the job waits for the first program to give the layout of the model; the "
          "call is "
          "retried automatically");
    case Kind::kAwaitsOther:
      return absl::UnavailableError(
          absl::StrCat("not ready: the job waits for ",
                       PeerText(refusal->subject, membership::MembershipTable::kMaxNameBytes),
                       ", which gave the job's settings, to supply the first weights; the call is "
                       "retried automatically"));
    case Kind::kSettings:
      return absl::InvalidArgumentError(absl::StrCat(
          "the settings that this program proposes are refused: ", refusal->cause.message()));
    case Kind::kTensors:
      return refuse_layout("it has ", refusal->present, " tensors, allowed are ", refusal->allowed);
    case Kind::kNames:
      return refuse_layout("the names and shapes of its tensors have ", refusal->present,
                           " bytes, allowed are ", refusal->allowed);
    case Kind::kMemory:
      return refuse_layout("it has ", refusal->present,
                           " elements, of which one server would hold ", refusal->largest_shard,
                           ": ", refusal->cause.message());
    case Kind::kCut:
      return refuse_layout(refusal->cause.message());
    case Kind::kBuckets:
      return refuse_layout("it would have ", refusal->present, " buckets, allowed are ",
                           refusal->allowed, "; give the server a larger --bucket_bytes");
  }
  return absl::OkStatus();
}

absl::Status DataRefusalStatus(absl::string_view name, const messages::DatasetInfo& data,
                               const std::optional<rounds::DataRefusal>& refusal) {
  using Kind = rounds::DataRefusal::Kind;
  if (!refusal.has_value()) return absl::OkStatus();
  switch (refusal->kind) {
    case Kind::kTooLarge:
      return absl::InvalidArgumentError(absl::StrCat(
          "the worker's data set has more than ", refusal->allowed, " samples: ", DataText(data),
          ". Check the numbers of samples that the training program gives"));
    case Kind::kNotSound:
      return absl::InvalidArgumentError(absl::StrCat(
          "the worker's data set has no training samples, or a negative size: ", DataText(data),
          "; check --data"));
    case Kind::kTooManySets:
      return absl::ResourceExhaustedError(absl::StrCat(
          "this job has already used ", refusal->allowed,
          " different data sets, which is the maximum. Give this worker one of those data sets"));
    case Kind::kOtherData:
      break;
  }
  // This worker may have brought the job's data itself, and then have changed its data. In that
  // case, the message names no other worker.
  const std::string& claimant = refusal->job.claimant;
  const bool is_other = !claimant.empty() && claimant != name;
  const std::string holder = absl::StrCat("worker '", claimant, "'");
  return absl::FailedPreconditionError(
      absl::StrCat("data set differs from the job's, ",
                   is_other           ? absl::StrCat("which ", holder, " has")
                   : claimant.empty() ? "which its checkpoint names"
                                      : "which this worker had before, so its data have changed",
                   ": this worker has ", DataText(data), "; the job has ",
                   DataText(refusal->job.info), ". Give ",
                   is_other ? absl::StrCat("--data with the same data as ", holder)
                            : "--data with the data that the job began with",
                   ", or give --data_partition=own",
                   HaveEqualCounts(data, refusal->job.info) ? kHowToCompareData : ""));
}

std::string MemberAlarmText(const ClusterState& state, const membership::MemberAlarm& alarm) {
  switch (alarm.kind) {
    case membership::MemberAlarm::Kind::kFormerStart:
      return absl::StrCat(
          "the job began at round 0, because --checkpoint_dir=", alarm.folder,
          " has no checkpoint. But worker '", alarm.worker, "' has contributed to round ",
          alarm.round.value(),
          " of an earlier job of servers at this address. To continue that job, "
          "stop this server and start it with the folder of that job. If this is a "
          "new job, end that worker, and start this server again with "
          "--resume=never, because the data of that worker are now part of this job");
    case membership::MemberAlarm::Kind::kOtherServers:
      if (alarm.is_one_of_many) {
        return "more workers have contributed to an earlier run that this run does not continue";
      }
      return absl::StrCat(
          "worker '", alarm.worker, "' has contributed to round ", alarm.round.value(),
          " of a run that this run does not continue. The worker may belong to another job that "
          "had this address. It now trains with this job; to end that, run `psctl evict ",
          alarm.worker, "`");
    case membership::MemberAlarm::Kind::kLacksReport:
      if (alarm.is_one_of_many) {
        return "more workers report acknowledged rounds that these servers do not know";
      }
      return absl::StrCat("worker '", alarm.worker, "' reports that its round ",
                          alarm.round.value(),
                          " was acknowledged, but these servers are only at round ",
                          state.rounds.ledger().next_round().value(),
                          ". Unless the worker is wrong, the servers' disks were set back to an "
                          "older state, and later rounds are lost. The worker joins again");
  }
  return "";
}

absl::Status LacksReportStatus(const ClusterState& state, Round round) {
  return absl::AbortedError(
      absl::StrCat("the servers are at round ", state.rounds.ledger().next_round().value(),
                   " and do not know round ", round.value(),
                   ", which was acknowledged to this worker; the worker joins again"));
}

absl::Status ReportRefusal(const messages::RoundReport& report,
                           const rounds::ReportVerdict& verdict) {
  const std::string subject = absl::StrCat("report of round ", report.round.value());
  switch (verdict.kind) {
    case rounds::ReportVerdict::Kind::kCurrent:
    case rounds::ReportVerdict::Kind::kRepeat:
      return absl::OkStatus();
    case rounds::ReportVerdict::Kind::kTooManyPredictions:
      return absl::InvalidArgumentError(
          absl::StrCat(subject, " has ", report.num_predictions, " predictions, ",
                       report.heldout_predictions, " held-out predictions, ",
                       report.heldout_correct, " of them correct; allowed are at most ",
                       verdict.allowed, ", and not more correct ones than predictions"));
    case rounds::ReportVerdict::Kind::kTooManySamples:
      return absl::InvalidArgumentError(absl::StrCat(
          subject, " has ", report.num_samples, " samples, ", report.num_predictions,
          " predictions, ", report.heldout_predictions, " held-out predictions; allowed are 0 to ",
          verdict.allowed, " samples, as many as were granted"));
    case rounds::ReportVerdict::Kind::kNotGranted:
      return absl::InvalidArgumentError(absl::StrCat(
          subject, ", but the worker ",
          verdict.granted.has_value() ? absl::StrCat("was granted round ", verdict.granted->value())
                                      : "has no grant",
          "; a worker may report only rounds that were granted to its present incarnation"));
  }
  return absl::OkStatus();
}

std::optional<absl::StatusOr<rounds::SiteOutcome>> OrderOutcomeOf(const ClusterState& state,
                                                                  uint64_t number) {
  const bool is_over = state.ending.is_stopping() || state.ending.is_work_held() || state.ends();
  const rounds::OrderVerdict verdict =
      state.rounds.JudgeOrder(number, !state.ending.failure().ok(), is_over);
  switch (verdict.kind) {
    case rounds::OrderVerdict::Kind::kUnderWay:
      return std::nullopt;
    case rounds::OrderVerdict::Kind::kDone:
      return verdict.outcome;
    case rounds::OrderVerdict::Kind::kWithdrawn:
      return absl::CancelledError(
          "the order for this round was withdrawn, or another order has replaced it");
    case rounds::OrderVerdict::Kind::kJobFailed:
      return state.ending.failure();
    case rounds::OrderVerdict::Kind::kNotHandedOut:
      return absl::CancelledError("this site's server hands out no work any more");
  }
  return std::nullopt;
}

}  // namespace lodestar::coordinator
