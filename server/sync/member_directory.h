// SPDX-License-Identifier: Apache-2.0

// MemberDirectory holds what a shard knows about the incarnations of workers. It is plain data. The
// shard makes one call at a time. It gets its data from the coordinator's Members and Drop
// commands.
//
// It remembers only the kMaxEnded newest incarnations that have ended by Drop(). A push of a
// forgotten incarnation is treated like a push of an incarnation that is not announced yet.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/sync/round_plan.h"

namespace lodestar::sync {

enum class Standing : uint8_t {
  kUnknown,  // not announced: perhaps the announcement is still on its way
  kMember,
  kGone,  // this incarnation is over: lease expired, left, or replaced by a newer one
};

class MemberDirectory {
 public:
  static constexpr int kMaxEnded = 1 << 12;

  MemberDirectory() = default;
  // All incarnations of workers up to `last_of_others` are over. Earlier processes of the servers
  // gave them.
  explicit MemberDirectory(Incarnation last_of_others) : last_of_others_(last_of_others) {}

  // Replaces the members. A view older than the last one is ignored.
  void SetMembers(ViewId view, absl::Span<const RosterMember> members);
  // Ends this and every earlier incarnation of the worker.
  void Drop(WorkerId worker, Incarnation incarnation);

  Standing StandingOf(WorkerId worker, Incarnation incarnation) const;
  ViewId view() const { return view_; }
  int num_members() const { return static_cast<int>(members_.size()); }

 private:
  Incarnation last_of_others_;
  ViewId view_;
  absl::flat_hash_map<WorkerId, Incarnation> members_;
  absl::flat_hash_map<WorkerId, Incarnation> last_ended_;
};

}  // namespace lodestar::sync
