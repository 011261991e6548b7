// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/cluster_words.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/plan/exchange_choice.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/time_text.h"
#include "server/coordinator/verdict_words.h"

namespace lodestar::coordinator {
namespace {

// Activity that a worker reports in its heartbeats while it cannot reach every server.
constexpr absl::string_view kNoPath = "no path";

constexpr absl::string_view kAnd = " and ";

// How long a wait lasts before the log reports it: usually kWaitPatience. kRoundPatience is for a
// round that no worker has handed in.
constexpr absl::Duration kWaitPatience = absl::Seconds(2);
constexpr absl::Duration kRoundPatience = absl::Minutes(1);

// Time between registration and joining after which a worker is reported. Usually the worker reads
// its data in less time.
constexpr absl::Duration kTimeToJoin = absl::Seconds(10);

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
    texts.push_back(ShardText(shard, shards::ServerStateName(server), server.since, age_at));
  }
  return texts;
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

// Returns a text such as "shard 0 has received 65540 of 1048576 bytes of bucket 3".
std::string PushText(const stragglers::MemberPushes::Unfinished& push) {
  return absl::StrCat("shard ", push.shard, " has received ", push.received_bytes, " of ",
                      push.total_bytes, " bytes of bucket ", push.bucket);
}

// Returns the time until the last of these workers is dropped, such as "; the wait ends in at most
// 4m20s". Empty means that one of them is never dropped, or that the time is over.
std::string TimeLeft(const ClusterState& state, absl::Span<const WorkerId> workers,
                     absl::Time now) {
  const std::vector<stragglers::Stall> stalls =
      state.stragglers.Stalls(state.FactsOfStragglers(now), now);
  absl::Time last = absl::InfinitePast();
  for (WorkerId worker : workers) last = std::max(last, DropTime(state, stalls, worker, now));
  if (last == absl::InfiniteFuture() || last <= now) return "";
  return absl::StrCat("; the wait ends in at most ", DurationText(last - now));
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
  return absl::StrCat("; ", absl::StrJoin(names, ", "), " cannot reach all servers (", addresses,
                      "): start the server that ", names.size() == 1 ? "it does" : "they do",
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
// worker a has unfinished contributions that fill the memory for contributions on shard 0, ...".
std::string SpaceKept(const ClusterState& state, std::optional<absl::Time> age_at) {
  std::string text;
  for (const membership::WorkerRecord* member : state.membership.table().Members()) {
    for (const auto& push : state.stragglers.Of(member->id).pushes().unfinished()) {
      if (!push.others_wait) continue;
      absl::StrAppend(
          &text, "; worker ", member->name,
          " has unfinished contributions that fill the memory for contributions on shard ",
          push.shard, ", and other workers wait for that memory");
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

// Returns a text to append to a number of rounds, such as ", 3 of them without a contribution".
// Empty means that every round had a contribution.
std::string WastedText(const ClusterState& state) {
  const int64_t lost = state.rounds.ledger().lost_rounds();
  return lost == 0 ? "" : absl::StrCat(", ", lost, " of them without a contribution");
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

}  // namespace

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

std::string WaitingForServers(const ClusterState& state, absl::Time now, Ages ages) {
  const std::optional<absl::Time> age_at = ages == Ages::kShown ? std::optional(now) : std::nullopt;
  std::vector<std::string> texts =
      ShardTexts(state, state.shards.Lacking(shards::ShardFleet::State::kAttached), age_at);
  for (const int shard : state.shards.Away()) {
    const shards::ShardFleet::Server& server = state.shards.servers()[shard];
    texts.push_back(ShardText(shard, shards::ServerStateName(server), *server.away_since, age_at));
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
          stall.push->others_wait ? ", and other workers wait for the memory that it fills" : "",
          "; a contribution must be complete within --round_timeout=", timeout);
    case stragglers::Stall::Kind::kSilentPush:
      return absl::StrCat(PushText(*stall.push), ", and nothing more for ", age,
                          " while the server was ready to read; a contribution that has begun must "
                          "continue within --lease=",
                          absl::FormatDuration(state.config.lease));
    case stragglers::Stall::Kind::kSpace:
      return absl::StrCat(
          "its unfinished contributions fill the memory for contributions on shard ",
          stall.push->shard, ", and other workers have waited for that memory for ", age, " (",
          PushText(*stall.push),
          "); a contribution must be complete within --round_timeout=", timeout);
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
          ? ". Check its network path to the servers, and that this worker belongs to your job"
          : absl::StrCat(". It then has more time, up to --round_timeout=",
                         absl::FormatDuration(state.config.round_timeout),
                         ". Check whether its process hangs"),
      ". If the worker is only slow, raise ",
      stall.kind == stragglers::Stall::Kind::kSilentPush ? "--lease" : "--round_timeout");
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
  JobOutcome ending = {absl::StrCat("ended early, after ", RoundsText(state)),
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
          "the upstream servers have withdrawn or replaced their order for this round");
    case rounds::OrderVerdict::Kind::kJobFailed:
      return state.ending.failure();
    case rounds::OrderVerdict::Kind::kNotHandedOut:
      return absl::CancelledError("this site's server hands out no work any more");
  }
  return std::nullopt;
}

}  // namespace lodestar::coordinator
