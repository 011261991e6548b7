#include "server/sync/local_sgd.h"

namespace lodestar {

Decision LocalSgd::OnPush(const PushFacts& push, const BucketFacts& bucket) const {
  return rounds_.OnPush(push, bucket);
}

Decision LocalSgd::OnPull(const PullFacts& pull, const BucketFacts& bucket) const {
  return rounds_.OnPull(pull, bucket);
}

Decision LocalSgd::OnRosterChange(const BucketFacts& bucket) const {
  return rounds_.OnRosterChange(bucket);
}

Decision LocalSgd::OnRoundEnd(const ClusterFacts& cluster) const {
  return rounds_.OnRoundEnd(cluster);
}

Decision LocalSgd::OnOpening(const ClusterFacts& cluster) const {
  return rounds_.OnOpening(cluster);
}

// Grants come from the opening of a round; what that waits for holds the member as well.
Decision LocalSgd::OnGrant(const MemberProgress&, const ClusterFacts& cluster) const {
  return rounds_.OnOpening(cluster);
}

}  // namespace lodestar
