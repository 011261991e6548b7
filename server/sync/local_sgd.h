// Local SGD (DiLoCo, arXiv:2311.08105): members train local_steps on their own; a round averages
// their pseudo-gradients for the outer optimizer.
#pragma once

#include "server/sync/roster_rounds.h"
#include "server/sync/sync_policy.h"

namespace lodestar {

class LocalSgd final : public SyncPolicy {
 public:
  LocalSgd() : rounds_(0, true) {}

  Decision OnPush(const PushFacts& push, const BucketFacts& bucket) const override;
  Decision OnPull(const PullFacts& pull, const BucketFacts& bucket) const override;
  Decision OnRosterChange(const BucketFacts& bucket) const override;
  Decision OnRoundEnd(const ClusterFacts& cluster) const override;
  Decision OnOpening(const ClusterFacts& cluster) const override;
  Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const override;

  bool uses_rosters() const override { return true; }
  bool fixed_order() const override { return rounds_.fixed_order(); }
  bool clips_on_server() const override { return false; }
  bool takes_pseudo_gradients() const override { return true; }

 private:
  RosterRounds rounds_;
};

}  // namespace lodestar
