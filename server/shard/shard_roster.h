// SPDX-License-Identifier: Apache-2.0

// ShardRoster holds what a shard knows about workers and rounds: which workers are alive, and which
// workers are in which round.
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

// A RosterView is the roster at one moment. It never changes, so buckets read it without a lock.
class RosterView {
 public:
  RosterView() = default;
  // For `last_of_others` see MemberDirectory.
  explicit RosterView(Incarnation last_of_others)
      : directory_(std::make_shared<const sync::MemberDirectory>(last_of_others)) {}

  sync::Standing StandingOf(WorkerId worker, Incarnation incarnation) const;
  // Returns the status for a caller whose request does not fit this job. If the caller's
  // incarnation is over, the caller may have the job of earlier servers. Then the status is
  // Aborted, and the worker registers again. Otherwise the status is `why`.
  absl::Status RefusalFor(WorkerId worker, Incarnation incarnation, absl::Status why) const;
  bool has_members() const { return has_members_; }
  int num_members() const;

  // Returns the plan of the round. Null means that the round has not been opened, or was forgotten
  // because it is long over.
  std::shared_ptr<const sync::RoundPlan> PlanOf(Round round) const;
  // Returns the workers of the plan's roster whose incarnation is not over, in ascending order.
  std::vector<WorkerId> LiveOf(const sync::RoundPlan& plan) const;
  // Returns the newest round that was opened. -1 means that there is none yet.
  Round newest_round() const { return newest_round_; }
  // Returns the first round that may still go on. The coordinator has declared all earlier rounds
  // over: it does so before it opens or saves a round.
  Round over_before() const { return over_before_; }

 private:
  friend class ShardRoster;

  std::shared_ptr<const sync::MemberDirectory> directory_ =
      std::make_shared<const sync::MemberDirectory>();
  bool has_members_ = false;  // there are members, or there were
  std::vector<std::shared_ptr<const sync::RoundPlan>> plans_;
  Round newest_round_{-1};
  Round over_before_{-1};
};

// The class is thread-safe. Its lock is a leaf: buckets call it while they hold their own lock.
class ShardRoster {
 public:
  // For `last_of_others` see MemberDirectory.
  explicit ShardRoster(Incarnation last_of_others = Incarnation())
      : now_(std::make_shared<const RosterView>(last_of_others)) {}

  void SetMembers(ViewId view, absl::Span<const sync::RosterMember> members);
  void Drop(WorkerId worker, Incarnation incarnation);
  // Opens a round. Rounds must come in order. Forgets the plans of rounds before `oldest_needed`.
  void Open(const sync::RoundPlan& plan, Round oldest_needed);
  // Must be called when all rounds before `round` are over.
  void EndBefore(Round round);

  std::shared_ptr<const RosterView> Now() const;

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const RosterView> now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::shard
