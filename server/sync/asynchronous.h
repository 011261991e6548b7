// Asynchronous training: a gradient takes effect when it arrives, each member goes on alone. With a
// bound, a member may be at most max_rounds_ahead rounds ahead of the slowest (stale synchronous
// parallel, Ho et al. 2013). A bound of 0 is lock step, which is BulkSynchronous: see the factory.
#pragma once

#include "server/sync/sync_policy.h"

namespace lodestar {

class Asynchronous final : public SyncPolicy {
 public:
  struct Config {
    int max_rounds_ahead = -1;  // -1: unbounded; smaller bounds: fresher gradients, more waiting
  };

  explicit Asynchronous(const Config& config) : max_rounds_ahead_(config.max_rounds_ahead) {}

  Decision OnPush(const PushFacts& push, const BucketFacts& bucket) const override;
  Decision OnPull(const PullFacts& pull, const BucketFacts& bucket) const override;
  Decision OnRosterChange(const BucketFacts& bucket) const override;
  Decision OnRoundEnd(const ClusterFacts& cluster) const override;
  Decision OnOpening(const ClusterFacts& cluster) const override;
  Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const override;

  bool uses_rosters() const override { return false; }
  bool fixed_order() const override { return false; }
  bool clips_on_server() const override { return false; }
  bool takes_pseudo_gradients() const override { return false; }

 private:
  int max_rounds_ahead_;
};

}  // namespace lodestar
