#include "server/sync/local_sgd_rounds.h"

namespace lodestar {

Decision LocalSgdRounds::OnPush(const PushFacts& push, const BucketFacts& bucket) const {
  return rounds_.OnPush(push, bucket);
}

Decision LocalSgdRounds::OnPull(const PullFacts& pull, const BucketFacts& bucket) const {
  return rounds_.OnPull(pull, bucket);
}

Decision LocalSgdRounds::OnRosterChange(const BucketFacts& bucket) const {
  return rounds_.OnRosterChange(bucket);
}

Decision LocalSgdRounds::OnRoundEnd(const ClusterFacts& cluster) const {
  return rounds_.OnRoundEnd(cluster);
}

Decision LocalSgdRounds::OnOpening(const ClusterFacts& cluster) const {
  return rounds_.OnOpening(cluster);
}

// Grants come from the opening of a round; what that waits for holds the member as well.
Decision LocalSgdRounds::OnGrant(const MemberProgress&, const ClusterFacts& cluster) const {
  return rounds_.OnOpening(cluster);
}

}  // namespace lodestar
