// SPDX-License-Identifier: Apache-2.0

// Policies of asynchronous training. A contribution takes effect when it arrives, and each member
// continues without waiting for the others.
//
// With max_rounds_ahead, a member may be at most that number of rounds ahead of the slowest member
// (stale synchronous parallel, Ho et al. 2013). These policies are not used if the number is 0 and
// contributions are gradients: see policy_factory.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/job/job_spec.h"
#include "server/sync/bucket_policy.h"
#include "server/sync/cluster_policy.h"

namespace lodestar::sync {

// The policy if contributions are gradients, each of which makes a step.
class AsynchronousBuckets : public BucketPolicy {
 public:
  Decision OnRosterChange(const BucketFacts& bucket) const override;
  bool uses_rosters() const override { return false; }
  std::optional<int> PartsOfStep(int) const override { return std::nullopt; }
  bool fixed_order() const override { return false; }

 protected:
  Decision OnNewPush(const PushFacts& push, const BucketFacts& bucket) const override;

 private:
  Decision OnLivePull(const PullFacts& pull, const BucketFacts& bucket) const override;
};

// The policy if contributions are pseudo-gradients of local steps. Several contributions together
// make one outer step (delayed Nesterov, arXiv:2401.09135, algorithm 3). If each contribution were
// an outer step with momentum, the weights would move much too far (equation 5 of the paper).
class AsynchronousLocalBuckets final : public AsynchronousBuckets {
 public:
  struct Config {
    int quorum = 0;              // parts of an outer step; 0 means the number of members
    int64_t max_staleness = -1;  // maximum staleness, in updates; -1 means no limit
  };
  explicit AsynchronousLocalBuckets(const Config& config) : config_(config) {}

  std::optional<int> PartsOfStep(int num_members) const override {
    const int members = std::max(num_members, 1);
    return config_.quorum > 0 ? std::min(config_.quorum, members) : members;
  }

 private:
  // Drops a contribution whose staleness is above max_staleness. Its worker then continues from
  // newer weights.
  Decision OnNewPush(const PushFacts& push, const BucketFacts& bucket) const override;

  const Config config_;
};

class AsynchronousCluster final : public ClusterPolicy {
 public:
  struct Config {
    // -1 means no bound. With a small bound, gradients are fresher and members wait more.
    int max_rounds_ahead = -1;
    // Maximum time that a member waits after its report, as a share of its own round time. It waits
    // for members that are expected to report within that time. Then all of them continue from the
    // same weights (the grace period of arXiv:2401.09135, section 4).
    double grace = 0.0;
  };
  explicit AsynchronousCluster(const Config& config) : config_(config) {}

  Decision OnRoundEnd(const OpenRoundFacts& round) const override;
  Decision OnOpening(const ClusterFacts& cluster) const override;
  Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const override;
  int max_roster() const override { return 1; }
  bool uses_rosters() const override { return false; }

 private:
  // Returns the working member that `member` waits for: the one that is expected to report first.
  // Returns null if `member` does not wait.
  const MemberProgress* ToMeet(const MemberProgress& member, const ClusterFacts& cluster) const;

  const Config config_;
};

// Returns the factor for the learning rate of a gradient's update: the older the gradient, the
// smaller the factor. `staleness` is the version at which the gradient is applied, minus the
// version that it was computed on. A staleness below 0 counts as 0. kInverse gives 1 / (1 +
// staleness).
double AsyncLearningRateFactor(job::StalenessScaling scaling, int64_t staleness);

}  // namespace lodestar::sync
