// SPDX-License-Identifier: Apache-2.0

#include "server/sync/member_directory.h"

#include <algorithm>

namespace lodestar::sync {

void MemberDirectory::SetMembers(ViewId view, absl::Span<const RosterMember> members) {
  if (view < view_) return;
  view_ = view;
  members_.clear();
  for (const RosterMember& member : members) members_[member.worker] = member.incarnation;
}

void MemberDirectory::Drop(WorkerId worker, Incarnation incarnation) {
  Incarnation& ended = last_ended_[worker];
  ended = std::max(ended, incarnation);
  if (last_ended_.size() <= kMaxEnded) return;
  last_ended_.erase(
      std::min_element(last_ended_.begin(), last_ended_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; }));
}

Standing MemberDirectory::StandingOf(WorkerId worker, Incarnation incarnation) const {
  if (incarnation <= last_of_others_) return Standing::kGone;
  auto ended = last_ended_.find(worker);
  if (ended != last_ended_.end() && incarnation <= ended->second) return Standing::kGone;
  auto member = members_.find(worker);
  if (member == members_.end() || incarnation > member->second) return Standing::kUnknown;
  return incarnation == member->second ? Standing::kMember : Standing::kGone;
}

}  // namespace lodestar::sync
