// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/straggler_detector.h"

#include <algorithm>
#include <string>
#include <utility>

namespace lodestar::stragglers {
namespace {

// Returns the open round with this number. Null means that this round is not open.
const StragglerFacts::OpenRound* FindRound(const StragglerFacts& facts, Round round) {
  const auto found = std::lower_bound(
      facts.rounds.begin(), facts.rounds.end(), round,
      [](const StragglerFacts::OpenRound& one, Round wanted) { return one.round < wanted; });
  return found == facts.rounds.end() || found->round != round ? nullptr : &*found;
}

// Returns the time since which the server of `shard` has run without a gap. A stall before that
// time may be the server's fault. Infinite future means that the server was not heard from since
// `stalled_since`.
absl::Time RunsSince(const StragglerFacts& facts, int shard, absl::Time stalled_since) {
  const StragglerFacts::Server& server = facts.servers[shard];
  return server.heard_at >= stalled_since ? server.runs_since : absl::InfiniteFuture();
}

}  // namespace

const WorkerActivity& StragglerDetector::Of(WorkerId worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? unknown_ : found->second;
}

void StragglerDetector::OnDropped(const Stall& stall, absl::Time now) {
  if (!stall.rest.has_value()) return;
  workers_[stall.worker].OnDropped(*stall.rest, /*lacks_time=*/!stall.push.has_value(), now);
}

std::vector<WorkerId> StragglerDetector::OnEnded(absl::Span<const WorkerFacts> ended,
                                                 const StragglerFacts& facts, absl::Time now) {
  absl::Time others_since = absl::InfiniteFuture();
  for (const WorkerFacts& member : facts.members) {
    if (!IsWaiting(member, facts)) continue;
    others_since =
        std::min(others_since, member.is_waiting ? member.idle_since : Of(member.id).same_since());
  }
  std::erase_if(certificates_rest_until_, [now](const auto& rest) { return rest.second <= now; });
  for (const WorkerFacts& worker : ended) {
    WorkerActivity& activity = workers_[worker.id];
    activity.EndLife();
    if (worker.grant == nullptr || FindRound(facts, worker.grant->round) == nullptr) continue;
    const absl::Duration waited = now - std::max({others_since, worker.given_at, facts.back_at});
    if (waited <= absl::ZeroDuration()) continue;
    activity.NoteWaitedFor();
    if (worker.certificate.empty()) continue;
    absl::Time& until =
        certificates_rest_until_.try_emplace(std::string(worker.certificate), now).first->second;
    until = std::max(until, now + waited);
  }
  std::vector<WorkerId> resting;
  for (const WorkerFacts& member : facts.members) {
    if (member.grant == nullptr && RestWithCertificate(member, now) > absl::ZeroDuration()) {
      resting.push_back(member.id);
    }
  }
  // If too few members for a round would be left, no member rests.
  const size_t others = facts.members.size() - resting.size();
  if (static_cast<int>(others) < facts.required_members) return {};
  for (const WorkerId worker : resting) workers_[worker].EndLife();
  return resting;
}

Rest StragglerDetector::RestOf(const WorkerFacts& worker, absl::Time now) const {
  if (const absl::Duration left = Of(worker.id).rests_until() - now; left > absl::ZeroDuration()) {
    return {Rest::Kind::kOwn, left};
  }
  const absl::Duration left = RestWithCertificate(worker, now);
  return {left > absl::ZeroDuration() ? Rest::Kind::kCertificate : Rest::Kind::kNone, left};
}

absl::Duration StragglerDetector::RestWithCertificate(const WorkerFacts& worker,
                                                      absl::Time now) const {
  // A rest of the worker's certificate applies only if the worker is new: it has completed no
  // round, and no other worker has waited for it.
  if (worker.has_completed_round || Of(worker.id).was_waited_for()) return absl::ZeroDuration();
  const auto rest = certificates_rest_until_.find(worker.certificate);
  if (rest == certificates_rest_until_.end()) return absl::ZeroDuration();
  return std::max(rest->second - now, absl::ZeroDuration());
}

bool StragglerDetector::IsWaiting(const WorkerFacts& worker, const StragglerFacts& facts) const {
  const WorkerActivity& activity = Of(worker.id);
  if (worker.is_waiting || activity.pushes().is_held()) return true;
  if (worker.grant == nullptr || !activity.may_wait_behind_others()) return false;
  // The members' contributions are summed in order. If this member is not the first missing one, it
  // may only be waiting for its turn.
  const StragglerFacts::OpenRound* const round = FindRound(facts, worker.grant->round);
  return round != nullptr && round->front != worker.id;
}

bool StragglerDetector::IsAnyoneWaiting(const StragglerFacts& facts) const {
  return std::any_of(facts.members.begin(), facts.members.end(),
                     [&](const WorkerFacts& member) { return IsWaiting(member, facts); });
}

absl::Time StragglerDetector::ReportDueAt(const WorkerFacts& worker, absl::Time since,
                                          absl::Duration usual_round) const {
  const WorkerActivity& activity = Of(worker.id);
  const absl::Duration for_work = patience_.ForWork(activity.pace().UsualFor(*worker.grant),
                                                    usual_round, activity.times_dropped());
  return since + patience_.ForTransfer(for_work, activity.moved_at() - since);
}

std::optional<Stall> StragglerDetector::WorkStall(const WorkerFacts& worker,
                                                  const StragglerFacts& facts) const {
  const WorkerActivity& activity = Of(worker.id);
  // The time in which a server held the worker's pushes does not count.
  const absl::Time back_at = std::max(facts.back_at, activity.pushes().held_at());
  if (worker.grant == nullptr) {
    if (!facts.awaits_asking || worker.is_leaving) return std::nullopt;
    const absl::Time since = std::max(worker.idle_since, back_at);
    return Stall{.worker = worker.id,
                 .kind = Stall::Kind::kAsking,
                 .since = since,
                 .until = since + patience_.ForAsking(activity.times_dropped())};
  }
  const StragglerFacts::OpenRound* const open = FindRound(facts, worker.grant->round);
  absl::Time since = std::max(worker.given_at, back_at);
  if (open == nullptr) {
    // No open round waits for this report. If no later round waits for the member either, it has no
    // stall.
    if (!facts.awaits_asking) return std::nullopt;
  } else if (activity.may_wait_behind_others()) {
    since = std::max(since, open->front_since);
  }
  return Stall{.worker = worker.id,
               .kind = Stall::Kind::kReport,
               .round = worker.grant->round,
               .usually = activity.pace().UsualFor(*worker.grant),
               .since = since,
               .until = ReportDueAt(worker, since, facts.usual_round)};
}

std::optional<Stall> StragglerDetector::PushStall(WorkerId worker,
                                                  const StragglerFacts& facts) const {
  const WorkerActivity& activity = Of(worker);
  std::optional<Stall> first;
  for (const MemberPushes::Unfinished& push : activity.pushes().unfinished()) {
    const auto consider = [&](Stall::Kind kind, absl::Time since, absl::Duration patience) {
      since = std::max(since, facts.back_at);
      if (first.has_value() && since + patience >= first->until) return;
      first = Stall{
          .worker = worker, .kind = kind, .push = push, .since = since, .until = since + patience};
    };
    const absl::Time runs_since = RunsSince(facts, push.shard, push.since);
    consider(Stall::Kind::kPush, std::max(push.since, runs_since),
             patience_.ForPush(push.received_bytes, push.total_bytes));
    // A worker that reports a standstill is about to replace its connection and push again. So this
    // push must not count as silent.
    if (push.silent_since < absl::InfiniteFuture() && !activity.path_stall().has_value()) {
      consider(Stall::Kind::kSilentPush, std::max(push.silent_since, runs_since),
               patience_.ForSilence());
    }
    if (push.others_wait) {
      consider(Stall::Kind::kSpace, push.space_kept_since, patience_.ForSpace());
    }
  }
  return first;
}

std::vector<Stall> StragglerDetector::Stalls(const StragglerFacts& facts, absl::Time now) const {
  if (!facts.is_working) return {};
  if (const auto& supplier = facts.supplier; supplier.has_value()) {
    const absl::Time since = std::max(supplier->others_since, facts.back_at);
    return {{.worker = supplier->worker,
             .kind = Stall::Kind::kWeights,
             .since = since,
             .until = since + patience_.ForAsking(Of(supplier->worker).times_dropped()),
             .rest = supplier_rest_}};
  }
  if (!IsAnyoneWaiting(facts)) return {};
  std::vector<std::optional<Stall>> pushes;
  bool does_anyone_get_on = false;
  for (const WorkerFacts& member : facts.members) {
    const WorkerActivity& activity = Of(member.id);
    const std::optional<Stall>& push = pushes.emplace_back(PushStall(member.id, facts));
    const bool has_path = !activity.path_stall().has_value() || activity.pushes().is_held();
    const bool is_over = push.has_value() && push->IsOver(now);
    does_anyone_get_on |= has_path && !is_over;
  }
  std::vector<Stall> all;
  for (size_t i = 0; i < pushes.size(); ++i) {
    const WorkerFacts& member = facts.members[i];
    std::optional<Stall> stall;
    if (!IsWaiting(member, facts)) stall = WorkStall(member, facts);
    if (std::optional<Stall>& push = pushes[i]; push.has_value()) {
      if (!does_anyone_get_on) push->until = absl::InfiniteFuture();
      if (!stall.has_value() || push->until < stall->until) stall = std::move(push);
    }
    if (!stall.has_value()) continue;
    stall->rest = now - stall->since;
    all.push_back(*std::move(stall));
  }
  return all;
}

std::optional<WorkerId> StragglerDetector::OnlyStalled(const StragglerFacts& facts,
                                                       absl::Time now) const {
  const std::vector<Stall> stalls = Stalls(facts, now);
  const bool is_one = stalls.size() == 1 && stalls.front().kind != Stall::Kind::kWeights;
  return is_one ? std::optional(stalls.front().worker) : std::nullopt;
}

std::optional<Stall> StragglerDetector::PathStall(const WorkerFacts& worker,
                                                  const StragglerFacts& facts) const {
  const WorkerActivity& activity = Of(worker.id);
  if (worker.grant == nullptr || activity.pushes().is_held()) return std::nullopt;
  const StragglerFacts::OpenRound* const round = FindRound(facts, worker.grant->round);
  if (round == nullptr) return std::nullopt;
  absl::Duration patience =
      patience_.ForPath(facts.usual_round, worker.has_reported, activity.times_dropped());
  Stall stall = {.worker = worker.id,
                 .kind = Stall::Kind::kPath,
                 .round = round->round,
                 .since = std::max(round->opened_at, facts.back_at)};
  // A worker that has reported may come back at once. Its path works, and its speed is known.
  if (!worker.has_reported) stall.rest = patience;
  if (const auto& path_stall = activity.path_stall(); path_stall.has_value()) {
    stall.since = std::max(
        {stall.since, path_stall->since, RunsSince(facts, path_stall->shard, path_stall->since)});
  } else if (activity.is_pulling()) {
    // A pull without progress is a stall. A push without progress is not: a worker may report
    // pushed bytes only when a server has received all of them.
    stall.since = std::max(stall.since, activity.same_since());
    patience = std::max(patience, RoundPatience::kForNewPath);
  } else {
    return std::nullopt;
  }
  stall.until = stall.since + patience;
  return stall;
}

std::vector<Stall> StragglerDetector::PathStalls(const StragglerFacts& facts,
                                                 absl::Time now) const {
  if (!facts.uses_rosters && !IsAnyoneWaiting(facts)) return {};
  std::vector<Stall> stalls;
  bool others_get_on = false;
  for (const WorkerFacts& member : facts.members) {
    if (const auto stall = PathStall(member, facts); stall.has_value() && now > stall->until) {
      stalls.push_back(*stall);
    } else {
      others_get_on |= !Of(member.id).path_stall().has_value();
    }
  }
  // If no member makes progress, the cause may be a server that cannot be reached. To drop a member
  // would then help no other member.
  if (!others_get_on) stalls.clear();
  return stalls;
}

}  // namespace lodestar::stragglers
