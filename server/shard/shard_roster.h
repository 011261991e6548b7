// ShardRoster is what a shard knows about workers and rounds: which workers are alive, and which
// are in which round.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/runtime/ids.h"
#include "server/sync/member_directory.h"
#include "server/sync/round_plan.h"

namespace lodestar::shard {

// A RosterView is one moment of the roster. It never changes, so buckets read it without a lock.
class RosterView {
 public:
  RosterView() = default;
  // See MemberDirectory.
  explicit RosterView(Incarnation last_of_others)
      : directory_(std::make_shared<const MemberDirectory>(last_of_others)) {}

  Standing StandingOf(WorkerId worker, Incarnation incarnation) const;
  // Returns what a caller is told whose request does not fit this job: `why`, if it lives. A caller
  // whose life is over asks by what it knew of servers before these. It gets Aborted, and the next
  // life knows better.
  absl::Status RefusalFor(WorkerId worker, Incarnation incarnation, absl::Status why) const;
  bool has_members() const { return has_members_; }
  int num_members() const;

  // Returns null if the round has not been opened, or is long over.
  std::shared_ptr<const RoundPlan> PlanOf(Round round) const;
  // Returns the workers of the plan's roster, without those whose life is over, in ascending order.
  std::vector<WorkerId> LiveOf(const RoundPlan& plan) const;
  // Returns the newest round that was opened. -1 means that there is none yet.
  Round newest_round() const { return newest_round_; }
  // Rounds that the coordinator has ended, as it has before it opens one or has one saved.
  Round over_before() const { return over_before_; }

 private:
  friend class ShardRoster;

  std::shared_ptr<const MemberDirectory> directory_ = std::make_shared<const MemberDirectory>();
  bool has_members_ = false;  // or had
  std::vector<std::shared_ptr<const RoundPlan>> plans_;
  Round newest_round_{-1};
  Round over_before_{-1};
};

// Thread-safe. Its lock is a leaf: buckets ask while they hold their own.
class ShardRoster {
 public:
  // See MemberDirectory.
  explicit ShardRoster(Incarnation last_of_others = Incarnation())
      : now_(std::make_shared<const RosterView>(last_of_others)) {}

  void SetMembers(ViewId view, absl::Span<const RosterMember> members);
  void Drop(WorkerId worker, Incarnation incarnation);
  // Rounds come in order; plans of rounds below `oldest_needed` are forgotten.
  void Open(const RoundPlan& plan, Round oldest_needed);
  // Earlier rounds are over.
  void EndBefore(Round round);

  std::shared_ptr<const RosterView> Now() const;

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const RosterView> now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::shard
