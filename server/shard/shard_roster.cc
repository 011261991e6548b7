#include "server/shard/shard_roster.h"

#include <algorithm>

namespace lodestar {

void ShardRoster::SetMembers(ViewId view, absl::Span<const RosterMember> members) {
  absl::MutexLock lock(&mutex_);
  directory_.SetMembers(view, members);
  has_members_ = has_members_ || !members.empty();
}

void ShardRoster::Drop(WorkerId worker, Incarnation incarnation) {
  absl::MutexLock lock(&mutex_);
  directory_.Drop(worker, incarnation);
}

Standing ShardRoster::StandingOf(WorkerId worker, Incarnation incarnation) const {
  absl::MutexLock lock(&mutex_);
  return directory_.StandingOf(worker, incarnation);
}

bool ShardRoster::has_members() const {
  absl::MutexLock lock(&mutex_);
  return has_members_;
}

int ShardRoster::num_members() const {
  absl::MutexLock lock(&mutex_);
  return directory_.num_members();
}

void ShardRoster::Open(const RoundPlan& plan, Round oldest_needed) {
  absl::MutexLock lock(&mutex_);
  plans_.erase(plans_.begin(), plans_.lower_bound(oldest_needed));
  plans_[plan.round] = std::make_shared<const RoundPlan>(plan);
  newest_round_ = std::max(newest_round_, plan.round);
}

std::shared_ptr<const RoundPlan> ShardRoster::PlanOf(Round round) const {
  absl::MutexLock lock(&mutex_);
  const auto found = plans_.find(round);
  return found == plans_.end() ? nullptr : found->second;
}

std::vector<WorkerId> ShardRoster::LiveOf(const RoundPlan& plan) const {
  absl::MutexLock lock(&mutex_);
  std::vector<WorkerId> live;
  for (const RosterMember& member : plan.roster) {
    // A plan may arrive before the list with its newest members.
    if (directory_.StandingOf(member.worker, member.incarnation) != Standing::kGone) {
      live.push_back(member.worker);
    }
  }
  return live;
}

Round ShardRoster::newest_round() const {
  absl::MutexLock lock(&mutex_);
  return newest_round_;
}

}  // namespace lodestar
