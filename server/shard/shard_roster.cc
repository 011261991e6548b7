// SPDX-License-Identifier: Apache-2.0

#include "server/shard/shard_roster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lodestar::shard {

sync::Standing RosterView::StandingOf(WorkerId worker, Incarnation incarnation) const {
  return directory_->StandingOf(worker, incarnation);
}

absl::Status RosterView::RefusalFor(WorkerId worker, Incarnation incarnation,
                                    absl::Status why) const {
  const bool is_member_of_none = worker == WorkerId();
  if (is_member_of_none || StandingOf(worker, incarnation) != sync::Standing::kGone) return why;
  return absl::AbortedError(
      absl::StrCat("the membership of worker ", worker.value(), " has ended (incarnation ",
                   incarnation.value(), "); the worker must register again (", why.message(), ")"));
}

int RosterView::num_members() const { return directory_->num_members(); }

std::shared_ptr<const sync::RoundPlan> RosterView::PlanOf(Round round) const {
  for (const std::shared_ptr<const sync::RoundPlan>& plan : plans_) {
    if (plan->round == round) return plan;
  }
  return nullptr;
}

std::vector<WorkerId> RosterView::LiveOf(const sync::RoundPlan& plan) const {
  std::vector<WorkerId> live;
  for (const sync::RosterMember& member : plan.roster) {
    // A member of the plan that is not announced yet counts as alive: its announcement may still be
    // on its way.
    if (StandingOf(member.worker, member.incarnation) != sync::Standing::kGone) {
      live.push_back(member.worker);
    }
  }
  return live;
}

void ShardRoster::SetMembers(ViewId view, absl::Span<const sync::RosterMember> members) {
  absl::MutexLock lock(&mutex_);
  auto next = std::make_shared<RosterView>(*now_);
  auto directory = std::make_shared<sync::MemberDirectory>(*now_->directory_);
  directory->SetMembers(view, members);
  next->directory_ = std::move(directory);
  next->has_members_ = next->has_members_ || !members.empty();
  now_ = std::move(next);
}

void ShardRoster::Drop(WorkerId worker, Incarnation incarnation) {
  absl::MutexLock lock(&mutex_);
  auto next = std::make_shared<RosterView>(*now_);
  auto directory = std::make_shared<sync::MemberDirectory>(*now_->directory_);
  directory->Drop(worker, incarnation);
  next->directory_ = std::move(directory);
  now_ = std::move(next);
}

void ShardRoster::Open(const sync::RoundPlan& plan, Round oldest_needed) {
  absl::MutexLock lock(&mutex_);
  auto next = std::make_shared<RosterView>(*now_);
  std::erase_if(next->plans_, [&](const auto& other) {
    return other->round < oldest_needed || other->round == plan.round;
  });
  next->plans_.push_back(std::make_shared<const sync::RoundPlan>(plan));
  next->newest_round_ = std::max(next->newest_round_, plan.round);
  next->over_before_ = std::max(next->over_before_, plan.round);
  now_ = std::move(next);
}

void ShardRoster::EndBefore(Round round) {
  absl::MutexLock lock(&mutex_);
  auto next = std::make_shared<RosterView>(*now_);
  next->over_before_ = std::max(next->over_before_, round);
  now_ = std::move(next);
}

std::shared_ptr<const RosterView> ShardRoster::Now() const {
  absl::MutexLock lock(&mutex_);
  return now_;
}

}  // namespace lodestar::shard
