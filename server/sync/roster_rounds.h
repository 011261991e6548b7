// Rounds with a roster: when a bucket has what it needs, and when the cluster may go on to the next
// round. Shared by the policies whose rounds have rosters. Pure.
#pragma once

#include "server/sync/decision.h"
#include "server/sync/sync_policy.h"

namespace lodestar {

class RosterRounds {
 public:
  // quorum 0: a round needs everyone of its roster, and sums are formed in order of worker id.
  // quorum K > 0: the first min(K, roster) contributions, in order of arrival.
  RosterRounds(int quorum, bool takes_pseudo_gradients)
      : quorum_(quorum), takes_pseudo_gradients_(takes_pseudo_gradients) {}

  Decision OnPush(const PushFacts& push, const BucketFacts& bucket) const;
  Decision OnPull(const PullFacts& pull, const BucketFacts& bucket) const;
  Decision OnRosterChange(const BucketFacts& bucket) const;
  Decision OnRoundEnd(const ClusterFacts& cluster) const;
  Decision OnOpening(const ClusterFacts& cluster) const;

  bool fixed_order() const { return quorum_ == 0; }

 private:
  // How many contributions the round needs, of `possible` that have come or can come.
  int Due(int possible) const;

  int quorum_;
  bool takes_pseudo_gradients_;
};

}  // namespace lodestar
