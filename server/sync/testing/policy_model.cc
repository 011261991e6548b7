// SPDX-License-Identifier: Apache-2.0

#include "server/sync/testing/policy_model.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/runtime/status_macros.h"

namespace lodestar::sync {
namespace {

absl::Status Broken(absl::string_view law, absl::string_view detail) {
  return absl::InternalError(absl::StrCat(law, ": ", detail));
}

// Returns the ids in "... waits for workers 1, 3" or "... comes after worker 2 in ...".
std::vector<WorkerId> AwaitedIn(absl::string_view reason) {
  std::vector<WorkerId> awaited;
  for (absl::string_view mark : {"waits for worker", "comes after worker"}) {
    const size_t at = reason.find(mark);
    if (at == absl::string_view::npos) continue;
    absl::string_view list = reason.substr(at + mark.size());
    absl::ConsumePrefix(&list, "s");
    for (absl::string_view word : absl::StrSplit(list, absl::ByAnyChar(", "), absl::SkipEmpty())) {
      uint32_t id = 0;
      if (!absl::SimpleAtoi(word, &id)) break;
      awaited.push_back(WorkerId(id));
    }
  }
  return awaited;
}

}  // namespace

PolicyModel::PolicyModel(const BucketPolicy& bucket_policy, const ClusterPolicy& cluster_policy,
                         const Config& config, uint64_t seed)
    : bucket_policy_(bucket_policy),
      cluster_policy_(cluster_policy),
      config_(config),
      random_(seed),
      buckets_(config.num_buckets) {
  for (int i = 0; i < config_.num_workers; ++i) {
    Worker worker;
    worker.id = WorkerId(static_cast<uint32_t>(i + 1));
    worker.base.resize(config_.num_buckets);
    workers_.push_back(worker);
  }
  for (Worker& worker : workers_) Revive(worker);
}

absl::Status PolicyModel::Step() {
  Worker& worker = workers_[Pick(config_.num_workers)];
  if (!worker.is_alive) {
    if (Flip(0.3)) Revive(worker);
  } else if (Flip(config_.death_rate)) {
    RETURN_IF_ERROR(Kill(worker));
  } else if (!buckets_.empty() && Flip(0.1)) {
    RETURN_IF_ERROR(RepeatOldPush(worker));
  } else if (!worker.granted.has_value()) {
    RETURN_IF_ERROR(Ask(worker));
  } else if (!worker.unread.empty()) {
    RETURN_IF_ERROR(Pull(worker));
  } else if (!worker.unsent.empty()) {
    RETURN_IF_ERROR(Send(worker));
  } else if (worker.in_flight.empty()) {
    RETURN_IF_ERROR(Ask(worker));
  }
  return Coordinate();
}

absl::Status PolicyModel::Drain() {
  config_.death_rate = 0.0;
  for (Worker& worker : workers_) {
    if (!worker.is_alive) Revive(worker);
  }
  std::vector<int64_t> goals;
  for (const Worker& worker : workers_) goals.push_back(worker.completed + 2);
  const int limit = 400 * config_.num_workers * (config_.num_buckets + 2);
  for (int step = 0; step < limit; ++step) {
    RETURN_IF_ERROR(Step());
    bool is_done = true;
    for (size_t i = 0; i < workers_.size(); ++i) is_done &= workers_[i].completed >= goals[i];
    if (is_done) return absl::OkStatus();
  }
  return Broken("nobody waits for ever while all are alive", last_reason_);
}

absl::Status PolicyModel::Ask(Worker& worker) {
  if (worker.granted.has_value()) {
    ++worker.completed;
    if (open_.has_value() && open_->round == *worker.granted) reported_.insert(worker.id);
    worker.granted.reset();
  }
  worker.is_waiting = true;
  return CheckAhead();
}

absl::Status PolicyModel::Pull(Worker& worker) {
  const int index = *worker.unread.begin();
  const BucketModel& bucket = buckets_[index];
  const Round wanted = bucket_policy_.uses_rosters() ? *worker.granted : Round(0);
  const PullFacts pull{worker.id, worker.incarnation, wanted,
                       directory_.StandingOf(worker.id, worker.incarnation)};
  const Decision decision = bucket_policy_.OnPull(pull, FactsOf(bucket));
  if (decision.action == Action::kApply) {
    if (bucket_policy_.uses_rosters() && bucket.version.value() < wanted.value()) {
      return Broken("a pull is answered when the rounds before min_round are over", "");
    }
    worker.base[index] = bucket.version;
    worker.unread.erase(index);
    return absl::OkStatus();
  }
  if (decision.action != Action::kHold) return Broken("a member may pull", decision.reason);
  return CheckAwaited(decision.reason);
}

absl::Status PolicyModel::Send(Worker& worker) {
  auto it = worker.unsent.begin();
  std::advance(it, Pick(static_cast<int>(worker.unsent.size())));
  const int index = *it;
  worker.unsent.erase(it);
  worker.in_flight.insert(index);
  buckets_[index].held[worker.id] = {worker.incarnation, *worker.granted, worker.base[index]};
  return Settle(index);
}

// Pushes a repeat of a counted contribution, which must be a duplicate. Then pushes a contribution
// of an older incarnation, which must be Aborted.
absl::Status PolicyModel::RepeatOldPush(Worker& worker) {
  const int index = Pick(config_.num_buckets);
  const BucketModel& bucket = buckets_[index];
  auto counted = bucket.counted.find(worker.id);
  if (counted == bucket.counted.end()) return absl::OkStatus();
  PushFacts push;
  push.worker = worker.id;
  push.incarnation = counted->second.incarnation;
  push.round = Round(std::max<int64_t>(0, counted->second.round.value() - Pick(3)));
  push.standing = directory_.StandingOf(push.worker, push.incarnation);
  push.last_counted = counted->second;
  const Decision decision = bucket_policy_.OnPush(push, FactsOf(bucket));
  if (decision.action != Action::kDrop || !decision.duplicate) {
    return Broken("a repeat is answered OK as a duplicate", decision.reason);
  }
  push.incarnation = Incarnation(push.incarnation.value() - 1);
  push.round = next_round_;
  const Decision older = bucket_policy_.OnPush(push, FactsOf(bucket));
  if (older.action != Action::kReject || older.code != absl::StatusCode::kAborted) {
    return Broken("an older incarnation is Aborted", older.reason);
  }
  return absl::OkStatus();
}

absl::Status PolicyModel::Kill(Worker& worker) {
  worker.is_alive = false;
  worker.is_waiting = false;
  worker.granted.reset();
  directory_.Drop(worker.id, worker.incarnation);
  for (int i = 0; i < config_.num_buckets; ++i) {
    std::erase(buckets_[i].live, worker.id);
    RETURN_IF_ERROR(Settle(i));
  }
  return absl::OkStatus();
}

void PolicyModel::Revive(Worker& worker) {
  int64_t slowest = -1;
  for (const Worker& other : workers_) {
    if (other.is_alive && (slowest < 0 || other.completed < slowest)) slowest = other.completed;
  }
  worker.is_alive = true;
  worker.incarnation = Incarnation(last_incarnation_ += 2);
  worker.unread.clear();
  worker.unsent.clear();
  worker.in_flight.clear();
  worker.completed = std::max<int64_t>(slowest, 0);
  std::vector<RosterMember> members;
  for (const Worker& other : workers_) {
    if (other.is_alive) members.push_back({other.id, other.incarnation, 0});
  }
  directory_.SetMembers(ViewId(++view_), members);
}

absl::Status PolicyModel::Count(int index, WorkerId worker, const Push& push) {
  BucketModel& bucket = buckets_[index];
  if (!bucket.applied.insert({worker, {push.incarnation, push.round}}).second) {
    return Broken("a contribution counts once", absl::StrCat("worker ", worker.value()));
  }
  if (directory_.StandingOf(worker, push.incarnation) != Standing::kMember) {
    return Broken("the dead do not contribute", absl::StrCat("worker ", worker.value()));
  }
  if (bucket_policy_.uses_rosters() && push.round.value() != bucket.version.value()) {
    return Broken("a contribution counts in its own round only",
                  absl::StrCat("round ", push.round.value(), " in ", bucket.version.value()));
  }
  if (bucket_policy_.fixed_order() && !bucket.contributed.empty() &&
      bucket.contributed.back() > worker) {
    return Broken("sums are formed in order of worker id", absl::StrCat(worker.value()));
  }
  bucket.contributed.insert(
      std::lower_bound(bucket.contributed.begin(), bucket.contributed.end(), worker), worker);
  bucket.counted[worker] = {push.incarnation, push.round};
  return absl::OkStatus();
}

// Like the shard, asks the policy again about everything that is held, until nothing changes.
absl::Status PolicyModel::Settle(int index) {
  BucketModel& bucket = buckets_[index];
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    const Decision roster = bucket_policy_.OnRosterChange(FactsOf(bucket));
    if (roster.action == Action::kApply || roster.action == Action::kDrop) {
      if ((roster.action == Action::kDrop) != bucket.contributed.empty()) {
        return Broken("an update follows exactly if something came", roster.reason);
      }
      Advance(index);
      has_changed = true;
      continue;
    }
    if (bucket_policy_.uses_rosters()) RETURN_IF_ERROR(CheckAwaited(roster.reason));
    for (const auto& [id, push] : std::map<WorkerId, Push>(bucket.held)) {
      PushFacts facts{id,
                      push.incarnation,
                      push.round,
                      push.base_version,
                      directory_.StandingOf(id, push.incarnation),
                      std::nullopt};
      if (auto it = bucket.counted.find(id); it != bucket.counted.end()) {
        facts.last_counted = it->second;
      }
      const Decision decision = bucket_policy_.OnPush(facts, FactsOf(bucket));
      last_reason_ = decision.reason;
      if (decision.action == Action::kHold) {
        RETURN_IF_ERROR(CheckAwaited(decision.reason));
        continue;
      }
      bucket.held.erase(id);
      workers_[id.value() - 1].in_flight.erase(index);
      has_changed = true;
      if (decision.counts()) {
        RETURN_IF_ERROR(Count(index, id, push));
        if (decision.action != Action::kAccumulate) Advance(index);
        break;
      }
      if (decision.action == Action::kReject && workers_[id.value() - 1].is_alive &&
          workers_[id.value() - 1].incarnation == push.incarnation) {
        return Broken("a member that keeps to its grants is not refused", decision.reason);
      }
    }
  }
  return absl::OkStatus();
}

void PolicyModel::Advance(int index) {
  BucketModel& bucket = buckets_[index];
  ++bucket.version;
  ++updates_;
  bucket.contributed.clear();
  bucket.live.clear();
  auto plan = bucket.plans.find(Round(bucket.version.value()));
  if (plan == bucket.plans.end()) return;
  for (const RosterMember& member : plan->second.roster) {
    if (directory_.StandingOf(member.worker, member.incarnation) == Standing::kMember) {
      bucket.live.push_back(member.worker);
    }
  }
}

absl::Status PolicyModel::Coordinate() {
  std::vector<MemberProgress> members = Members();
  std::vector<MemberProgress> missing;
  ClusterFacts cluster = Cluster(members, missing);
  if (!cluster_policy_.uses_rosters()) return GrantAlone(members, cluster);
  if (open_.has_value()) {
    const Decision end = cluster_policy_.OnRoundEnd(*cluster.open_round);
    last_reason_ = end.reason;
    if (end.action == Action::kHold && missing.empty()) {
      return Broken("a round without anyone missing is over", end.reason);
    }
    if (end.action != Action::kApply) return absl::OkStatus();
    open_.reset();
    reported_.clear();
    cluster = Cluster(members, missing);
  }
  ASSIGN_OR_RETURN(const bool may_open, MayOpen(cluster));
  if (!may_open) return absl::OkStatus();
  RoundPlan plan{next_round_, ViewId(view_), {}, 0.1};
  for (const MemberProgress& member : members) {
    if (!member.waiting) continue;
    if (cluster_policy_.OnGrant(member, cluster).action != Action::kApply) {
      return Broken("whoever waits when a round opens is in it", member.name);
    }
    Worker& worker = workers_[member.worker.value() - 1];
    plan.roster.push_back({worker.id, worker.incarnation, 1});
    GiveGrant(worker, next_round_);
  }
  if (plan.roster.empty()) return Broken("a round opens for those that wait", "nobody does");
  open_ = plan;
  for (int i = 0; i < config_.num_buckets; ++i) {
    buckets_[i].plans.clear();
    buckets_[i].plans[plan.round] = plan;
    if (buckets_[i].version.value() == plan.round.value()) {
      for (const RosterMember& member : plan.roster) buckets_[i].live.push_back(member.worker);
    }
    RETURN_IF_ERROR(Settle(i));
  }
  ++next_round_;
  return absl::OkStatus();
}

absl::StatusOr<bool> PolicyModel::MayOpen(const ClusterFacts& cluster) {
  const Decision opening = cluster_policy_.OnOpening(cluster);
  if (opening.action == Action::kApply) return true;
  if (opening.reason.empty()) return Broken("a hold has a reason", "opening");
  last_reason_ = opening.reason;
  return false;
}

absl::Status PolicyModel::GrantAlone(const std::vector<MemberProgress>& members,
                                     const ClusterFacts& cluster) {
  ASSIGN_OR_RETURN(const bool may_open, MayOpen(cluster));
  if (!may_open) return absl::OkStatus();
  for (const MemberProgress& member : members) {
    if (!member.waiting) continue;
    const Decision decision = cluster_policy_.OnGrant(member, cluster);
    if (decision.action == Action::kApply) {
      GiveGrant(workers_[member.worker.value() - 1], next_round_);
      ++next_round_;
    } else if (decision.reason.empty()) {
      return Broken("a hold has a reason", member.name);
    }
  }
  return absl::OkStatus();
}

void PolicyModel::GiveGrant(Worker& worker, Round round) {
  worker.is_waiting = false;
  worker.granted = round;
  for (int i = 0; i < config_.num_buckets; ++i) {
    worker.unread.insert(i);
    worker.unsent.insert(i);
  }
}

absl::Status PolicyModel::CheckAhead() const {
  if (config_.max_rounds_ahead < 0) return absl::OkStatus();
  int64_t slowest = INT64_MAX;
  int64_t fastest = 0;
  for (const Worker& worker : workers_) {
    if (!worker.is_alive) continue;
    slowest = std::min(slowest, worker.completed);
    fastest = std::max(fastest, worker.completed);
  }
  if (fastest - slowest <= config_.max_rounds_ahead + 1) return absl::OkStatus();
  return Broken("nobody is more than max_rounds_ahead + 1 rounds ahead",
                absl::StrCat(fastest, " against ", slowest));
}

absl::Status PolicyModel::CheckAwaited(const std::string& reason) const {
  if (!absl::StrContains(reason, "waits for") && !absl::StrContains(reason, "comes after")) {
    return Broken("a hold says whom it waits for", reason);
  }
  for (WorkerId awaited : AwaitedIn(reason)) {
    if (!workers_.at(awaited.value() - 1).is_alive) {
      return Broken("the dead are not waited for", reason);
    }
  }
  return absl::OkStatus();
}

BucketFacts PolicyModel::FactsOf(const BucketModel& bucket) const {
  BucketFacts facts;
  facts.version = bucket.version;
  facts.round = Round(bucket.version.value());
  if (open_.has_value()) facts.newest_opened = facts.over_before = open_->round;
  auto plan = bucket.plans.find(Round(bucket.version.value()));
  facts.plan = plan == bucket.plans.end() ? nullptr : &plan->second;
  facts.live = bucket.live;
  facts.contributed = bucket.contributed;
  return facts;
}

std::vector<MemberProgress> PolicyModel::Members() const {
  std::vector<MemberProgress> members;
  for (const Worker& worker : workers_) {
    if (!worker.is_alive) continue;
    members.push_back({worker.id, absl::StrCat("w", worker.id.value()), worker.completed,
                       worker.is_waiting, worker.granted.has_value()});
  }
  return members;
}

ClusterFacts PolicyModel::Cluster(const std::vector<MemberProgress>& members,
                                  std::vector<MemberProgress>& missing) const {
  ClusterFacts cluster;
  cluster.required.count = config_.min_workers;
  cluster.members = members;
  missing.clear();
  if (!open_.has_value()) return cluster;
  for (const MemberProgress& member : members) {
    const RosterMember* planned = open_->Find(member.worker);
    const Worker& worker = workers_[member.worker.value() - 1];
    if (planned != nullptr && planned->incarnation == worker.incarnation &&
        !reported_.contains(member.worker)) {
      missing.push_back(member);
    }
  }
  cluster.open_round = OpenRoundFacts{open_->round, static_cast<int>(reported_.size()), missing};
  return cluster;
}

bool PolicyModel::Flip(double probability) {
  return std::uniform_real_distribution<double>(0.0, 1.0)(random_) < probability;
}

int PolicyModel::Pick(int count) {
  return std::uniform_int_distribution<int>(0, count - 1)(random_);
}

}  // namespace lodestar::sync
