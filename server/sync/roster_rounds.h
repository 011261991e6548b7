// SPDX-License-Identifier: Apache-2.0

// Policies of jobs whose rounds have rosters. Each member of the roster contributes once per round,
// and the mean of the contributions is one update. These jobs are:
// - synchronous training, in which contributions are gradients,
// - asynchronous training in lock step (max_rounds_ahead=0),
// - local SGD, in which contributions are changes of the weights (DiLoCo, arXiv:2311.08105).
//
// With a quorum of K, the first K contributions are enough (backup workers, Chen et al. 2016,
// arXiv:1604.00981).
#pragma once

#include <optional>

#include "server/sync/bucket_policy.h"
#include "server/sync/cluster_policy.h"

namespace lodestar::sync {

class RosterBuckets final : public BucketPolicy {
 public:
  // If `quorum` is 0, a round needs a contribution of every member of its roster. Sums are formed
  // in order of worker ids. Only a contribution on fewer samples than granted is added when it
  // comes.
  //
  // If `quorum` is K > 0, a round takes the first min(K, roster) contributions in order of arrival.
  // Later ones are dropped.
  //
  // A bucket is exchanged once in `fragments` rounds. A push may be up to `fragments` rounds ahead
  // of the newest round that this server knows, and is then held. Other servers may have ended
  // these rounds earlier.
  explicit RosterBuckets(int quorum, int fragments = 1) : quorum_(quorum), fragments_(fragments) {}

  Decision OnRosterChange(const BucketFacts& bucket) const override;
  bool uses_rosters() const override { return true; }
  std::optional<int> PartsOfStep(int) const override { return std::nullopt; }
  bool fixed_order() const override { return quorum_ == 0; }

 private:
  Decision OnNewPush(const PushFacts& push, const BucketFacts& bucket) const override;
  Decision OnLivePull(const PullFacts& pull, const BucketFacts& bucket) const override;

  const int quorum_;
  const int fragments_;
};

class RosterCluster final : public ClusterPolicy {
 public:
  explicit RosterCluster(int quorum) : quorum_(quorum) {}

  Decision OnRoundEnd(const OpenRoundFacts& round) const override;
  Decision OnOpening(const ClusterFacts& cluster) const override;
  Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const override;
  int max_roster() const override;
  bool uses_rosters() const override { return true; }

 private:
  const int quorum_;
};

}  // namespace lodestar::sync
