// Asynchronous training: a contribution takes effect when it arrives, each member goes on alone.
// With a bound, a member may be at most max_rounds_ahead rounds ahead of the slowest (stale
// synchronous parallel, Ho et al. 2013). A bound of 0 is lock step, which is a round that all
// share: see the factory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/job/job_spec.h"
#include "server/sync/bucket_policy.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

// Contributions are gradients, each of which makes a step.
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

// Contributions are the pseudo-gradients of local steps, each of which is a part of an outer step
// (delayed Nesterov, arXiv:2401.09135, algorithm 3): applied one by one with the momentum of a step
// for each, N workers would go many times as far as one step of their mean does (equation 5 there).
class AsynchronousLocalBuckets final : public AsynchronousBuckets {
 public:
  struct Config {
    int quorum = 0;              // parts of an outer step; 0 means as many as members
    int64_t max_staleness = -1;  // updates that a contribution may be late; -1 means any
  };
  explicit AsynchronousLocalBuckets(const Config& config) : config_(config) {}

  std::optional<int> PartsOfStep(int num_members) const override {
    const int members = std::max(num_members, 1);
    return config_.quorum > 0 ? std::min(config_.quorum, members) : members;
  }

 private:
  // What is too old is late: dropped, and its worker goes on from newer weights.
  Decision OnNewPush(const PushFacts& push, const BucketFacts& bucket) const override;

  const Config config_;
};

class AsynchronousCluster final : public ClusterPolicy {
 public:
  struct Config {
    int max_rounds_ahead = -1;  // -1 means no bound; a small one: fresh gradients, more waiting
    // A member that has just handed in waits for others that are about to, so that both go on from
    // the same weights (the grace period of arXiv:2401.09135, section 4): at most so much of the
    // time that its own rounds take, and only for those that have usually reported by then.
    double grace = 0.0;
  };
  explicit AsynchronousCluster(const Config& config) : config_(config) {}

  Decision OnRoundEnd(const OpenRoundFacts& round) const override;
  Decision OnOpening(const ClusterFacts& cluster) const override;
  Decision OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const override;
  int max_roster() const override { return 1; }
  bool uses_rosters() const override { return false; }

 private:
  // Whom `member` meets, if anybody: the one that is expected first.
  const MemberProgress* ToMeet(const MemberProgress& member, const ClusterFacts& cluster) const;

  const Config config_;
};

// How the age of a gradient weakens its update: factor on the learning rate. `staleness`: version
// at apply minus version that the gradient was computed on; below 0 counts as 0. kInverse:
// 1 / (1 + staleness).
double AsyncLearningRateFactor(StalenessScaling scaling, int64_t staleness);

}  // namespace lodestar
