// Rounds that a roster shares, one contribution per member, averaged to one update: synchronous
// training (the contributions are gradients), lock step, and local SGD (weight changes; DiLoCo,
// arXiv:2311.08105). With a quorum of K the first K suffice (backup workers, Chen et al. 2016,
// arXiv:1604.00981).
#pragma once

#include <optional>

#include "server/sync/bucket_policy.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

class RosterBuckets final : public BucketPolicy {
 public:
  // quorum 0: a round needs everyone of its roster, and sums are formed in order of worker id, but
  // for contributions on fewer samples than granted, which are added when they come.
  // quorum K > 0: the first min(K, roster) contributions, in order of arrival; what stragglers send
  // is lost.
  // `fragments`: in as many rounds each bucket is exchanged once, so that as many may be over
  // elsewhere before this server hears of them.
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

}  // namespace lodestar
