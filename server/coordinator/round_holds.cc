#include "server/coordinator/round_holds.h"

#include <algorithm>
#include <utility>

#include "server/coordinator/round_patience.h"

namespace lodestar {
namespace {

RoundPatience PatienceOf(const ClusterState& state) {
  return RoundPatience(state.config.lease, state.config.round_timeout);
}

// Returns when a member that has had its work since `since` must have reported it.
absl::Time Deadline(const ClusterState& state, const WorkerDesk& desk, absl::Time since) {
  const RoundPatience patience = PatienceOf(state);
  const absl::Duration for_work =
      patience.ForWork(desk.activity.pace().UsualFor(*desk.assignment.grant()),
                       state.progress.usual_round(), desk.activity.times_dropped());
  return since + patience.ForTransfer(for_work, desk.activity.moved_at() - since);
}

// Returns the hold of what this member pushes and has not finished.
std::optional<Hold> PushHold(const ClusterState& state, const WorkerDesk& desk, WorkerId worker) {
  const RoundPatience patience = PatienceOf(state);
  const absl::Time back_at = state.shards.back_at();
  std::optional<Hold> first;
  const auto consider = [&](Hold hold) {
    if (!first.has_value() || hold.until < first->until) first = std::move(hold);
  };
  for (const MemberPushes::Unfinished& push : desk.activity.pushes().unfinished()) {
    const absl::Time since =
        std::max({push.since, back_at, state.shards.RunsSince(push.shard, push.since)});
    consider({.worker = worker,
              .push = push,
              .since = since,
              .until = since + patience.ForPush(push.received_bytes, push.total_bytes)});
    // A worker that says that its transfers stand still is about to take another connection.
    if (push.silent_since < absl::InfiniteFuture() && !desk.activity.still().has_value()) {
      const absl::Time silent_since =
          std::max({push.silent_since, back_at, state.shards.RunsSince(push.shard, push.since)});
      consider({.worker = worker,
                .push = push,
                .is_abandoned = true,
                .since = silent_since,
                .until = silent_since + patience.ForSilence()});
    }
    if (!push.others_wait) continue;
    const absl::Time kept_since = std::max(push.space_kept_since, back_at);
    consider({.worker = worker,
              .push = push,
              .keeps_space = true,
              .since = kept_since,
              .until = kept_since + patience.ForSpace()});
  }
  return first;
}

// Whether members without work hold up the others if they do not ask for some.
bool AwaitsAsking(const ClusterState& state, absl::Time now) {
  if (state.policy->uses_rosters() && !state.open.empty()) return false;
  if (state.is_stopping() || state.is_work_held() || state.is_paused()) return false;
  if (state.phase == CoordinatorPhase::kEvaluating) return true;
  return state.has_next_round() && AwaitMembers(state.View(now).Facts()).action == Action::kApply;
}

// Returns the hold of the worker that is to supply the first weights, before which there are no
// members.
std::vector<Hold> SupplyHolds(const ClusterState& state) {
  if (!state.supply.supplier().has_value() || !state.supply.others_since().has_value()) return {};
  const WorkerId supplier = state.supply.supplier()->worker;
  const auto& workers = state.membership.workers();
  const bool is_anyone_waiting =
      std::any_of(workers.begin(), workers.end(), [supplier](const auto& worker) {
        return worker.first != supplier && worker.second.is_alive();
      });
  const absl::Time since = std::max(*state.supply.others_since(), state.shards.back_at());
  const absl::Duration patience =
      PatienceOf(state).ForAsking(state.desks.at(supplier).activity.times_dropped());
  return {{.worker = supplier,
           .owes_weights = true,
           .since = since,
           .until = is_anyone_waiting ? since + patience : absl::InfiniteFuture()}};
}

// Whether nothing but the order of summation keeps the member from having done its round.
bool WaitsBehindOthers(const ClusterState& state, const WorkerDesk& desk, WorkerId worker) {
  if (!desk.assignment.grant().has_value() || !desk.activity.may_wait_behind_others()) return false;
  const auto open = state.open.find(desk.assignment.grant()->round);
  return open != state.open.end() && open->second.Missing().front() != worker;
}

bool IsWaiting(const ClusterState& state, const WorkerDesk& desk, WorkerId worker) {
  return desk.assignment.is_waiting() || desk.activity.pushes().is_held() ||
         WaitsBehindOthers(state, desk, worker);
}

// Returns the hold of a member that waits for no other.
std::optional<Hold> WorkHold(const ClusterState& state, const WorkerDesk& desk, WorkerId worker,
                             bool awaits_asking) {
  // While a server held what it pushes, it could not get on.
  const absl::Time back_at = std::max(state.shards.back_at(), desk.activity.pushes().held_at());
  if (!desk.assignment.grant().has_value()) {
    if (!awaits_asking || desk.assignment.is_leaving()) return std::nullopt;
    const absl::Time since = std::max(desk.assignment.idle_since(), back_at);
    return Hold{.worker = worker,
                .since = since,
                .until = since + PatienceOf(state).ForAsking(desk.activity.times_dropped())};
  }
  const Round round = desk.assignment.grant()->round;
  const auto open = state.open.find(round);
  absl::Time since = std::max(desk.assignment.given_at(), back_at);
  if (open == state.open.end()) {
    // It went on without this member; a later one may still need it.
    if (!awaits_asking) return std::nullopt;
  } else if (desk.activity.may_wait_behind_others()) {
    since = std::max(since, open->second.front_since());
  }
  return Hold{.worker = worker,
              .round = round,
              .usually = desk.activity.pace().UsualFor(*desk.assignment.grant()),
              .since = since,
              .until = Deadline(state, desk, since)};
}

}  // namespace

std::vector<Hold> RoundHolds(const ClusterState& state, absl::Time now) {
  const bool is_working =
      state.phase == CoordinatorPhase::kRunning || state.phase == CoordinatorPhase::kEvaluating;
  if (!is_working || state.is_shard_away()) return {};
  if (state.supply.is_awaited()) return SupplyHolds(state);
  const bool awaits_asking = AwaitsAsking(state, now);
  struct HoldsOfMember {
    std::optional<Hold> work;
    std::optional<Hold> push;
  };
  std::vector<HoldsOfMember> members;
  const bool is_anyone_waiting = IsAnyoneWaiting(state);
  bool does_anyone_get_on = false;
  for (const WorkerRecord* member : state.membership.Members()) {
    const WorkerDesk& desk = state.desks.at(member->id);
    HoldsOfMember& holds = members.emplace_back();
    if (!IsWaiting(state, desk, member->id)) {
      holds.work = WorkHold(state, desk, member->id, awaits_asking);
    }
    holds.push = PushHold(state, desk, member->id);
    const bool has_path = !desk.activity.still().has_value() || desk.activity.pushes().is_held();
    const bool is_over = holds.push.has_value() && holds.push->IsOver(now);
    does_anyone_get_on = does_anyone_get_on || (has_path && !is_over);
  }
  std::vector<Hold> all;
  for (HoldsOfMember& holds : members) {
    if (holds.push.has_value() && !does_anyone_get_on) holds.push->until = absl::InfiniteFuture();
    const bool is_push = holds.push.has_value() &&
                         (!holds.work.has_value() || holds.push->until < holds.work->until);
    std::optional<Hold>& hold = is_push ? holds.push : holds.work;
    if (!hold.has_value()) continue;
    if (!is_anyone_waiting) hold->until = absl::InfiniteFuture();
    all.push_back(*std::move(hold));
  }
  return all;
}

bool IsAnyoneWaiting(const ClusterState& state) {
  const std::vector<const WorkerRecord*> members = state.membership.Members();
  return std::any_of(members.begin(), members.end(), [&](const WorkerRecord* member) {
    return IsWaiting(state, state.desks.at(member->id), member->id);
  });
}

std::optional<WorkerId> OnlyHolder(const ClusterState& state, absl::Time now) {
  const std::vector<Hold> holds = RoundHolds(state, now);
  if (holds.size() != 1 || holds.front().owes_weights || !IsAnyoneWaiting(state)) {
    return std::nullopt;
  }
  return holds.front().worker;
}

absl::Duration WaitedFor(const ClusterState& state, WorkerId worker, absl::Time now) {
  const WorkerDesk& held = state.desks.at(worker);
  if (!held.assignment.grant().has_value() ||
      !state.open.contains(held.assignment.grant()->round)) {
    return absl::ZeroDuration();
  }
  absl::Time since = absl::InfiniteFuture();
  for (const WorkerRecord* member : state.membership.Members()) {
    const WorkerDesk& desk = state.desks.at(member->id);
    if (member->id == worker || !IsWaiting(state, desk, member->id)) continue;
    since = std::min(since, desk.assignment.is_waiting() ? desk.assignment.idle_since()
                                                         : desk.activity.same_since());
  }
  since = std::max({since, held.assignment.given_at(), state.shards.back_at()});
  return std::max(now - since, absl::ZeroDuration());
}

absl::Time HandInBy(const ClusterState& state, const WorkerDesk& desk) {
  return Deadline(state, desk, std::max(desk.assignment.given_at(), state.shards.back_at()));
}

}  // namespace lodestar
