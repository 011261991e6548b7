// What a shard knows about workers and rounds: who is alive, who is in which round.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "server/sync/member_directory.h"
#include "server/sync/round_plan.h"

namespace lodestar {

// Thread-safe. Its lock is a leaf: buckets ask while they hold their own.
class ShardRoster {
 public:
  void SetMembers(ViewId view, absl::Span<const RosterMember> members);
  void Drop(WorkerId worker, Incarnation incarnation);
  Standing StandingOf(WorkerId worker, Incarnation incarnation) const;
  bool has_members() const;
  int num_members() const;

  // Rounds come in order; plans of rounds below `oldest_needed` are forgotten.
  void Open(const RoundPlan& plan, Round oldest_needed);
  // Null if the round has not been opened, or is long over.
  std::shared_ptr<const RoundPlan> PlanOf(Round round) const;
  // Of the plan's roster, without those whose life is over; ascending.
  std::vector<WorkerId> LiveOf(const RoundPlan& plan) const;
  // -1: none yet.
  Round newest_round() const;

 private:
  mutable absl::Mutex mutex_;
  MemberDirectory directory_ ABSL_GUARDED_BY(mutex_);
  bool has_members_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Round, std::shared_ptr<const RoundPlan>> plans_ ABSL_GUARDED_BY(mutex_);
  Round newest_round_ ABSL_GUARDED_BY(mutex_){-1};
};

}  // namespace lodestar
