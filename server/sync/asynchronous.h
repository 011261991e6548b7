// Asynchronous training: a gradient takes effect when it arrives, each member goes on alone. With a
// bound, a member may be at most max_rounds_ahead rounds ahead of the slowest (stale synchronous
// parallel, Ho et al. 2013). A bound of 0 is lock step, which is a round that all share: see the
// factory.
#pragma once

#include <cstdint>

#include "common/job_spec.h"
#include "server/sync/bucket_policy.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

class AsynchronousBuckets final : public BucketPolicy {
 public:
  Decision OnRosterChange(const BucketFacts& bucket) const override;
  bool uses_rosters() const override { return false; }
  bool fixed_order() const override { return false; }

 private:
  Decision OnNewPush(const PushFacts& push, const BucketFacts& bucket) const override;
  Decision OnLivePull(const PullFacts& pull, const BucketFacts& bucket) const override;
};

class AsynchronousCluster final : public ClusterPolicy {
 public:
  // -1: unbounded; smaller bounds: fresher gradients, more waiting.
  explicit AsynchronousCluster(int max_rounds_ahead) : max_rounds_ahead_(max_rounds_ahead) {}

  Decision OnRoundEnd(const OpenRoundFacts& round) const override;
  Decision OnOpening(const ClusterFacts& cluster) const override;
  Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const override;
  int max_roster() const override { return 1; }
  bool uses_rosters() const override { return false; }

 private:
  const int max_rounds_ahead_;
};

// How the age of a gradient weakens its update: factor on the learning rate. `staleness`: version
// at apply minus version that the gradient was computed on; below 0 counts as 0. kInverse:
// 1 / (1 + staleness).
double AsyncLearningRateFactor(StalenessScaling scaling, int64_t staleness);

}  // namespace lodestar
