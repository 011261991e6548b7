// Synchronous training: one gradient per member of the roster and round, averaged, one update. With
// a quorum, the first K suffice (backup workers, Chen et al. 2016, arXiv:1604.00981).
#pragma once

#include "server/sync/roster_rounds.h"
#include "server/sync/sync_policy.h"

namespace lodestar {

class BulkSynchronous final : public SyncPolicy {
 public:
  struct Config {
    int quorum = 0;  // 0: everyone; K: rounds do not wait for stragglers, whose work is then lost
  };

  explicit BulkSynchronous(const Config& config) : rounds_(config.quorum, false) {}

  Decision OnPush(const PushFacts& push, const BucketFacts& bucket) const override;
  Decision OnPull(const PullFacts& pull, const BucketFacts& bucket) const override;
  Decision OnRosterChange(const BucketFacts& bucket) const override;
  Decision OnRoundEnd(const ClusterFacts& cluster) const override;
  Decision OnOpening(const ClusterFacts& cluster) const override;
  Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const override;

  bool uses_rosters() const override { return true; }
  bool fixed_order() const override { return rounds_.fixed_order(); }
  bool clips_on_server() const override { return true; }
  bool takes_pseudo_gradients() const override { return false; }

 private:
  RosterRounds rounds_;
};

}  // namespace lodestar
