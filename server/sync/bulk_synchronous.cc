#include "server/sync/bulk_synchronous.h"

namespace lodestar {

Decision BulkSynchronous::OnPush(const PushFacts& push, const BucketFacts& bucket) const {
  return rounds_.OnPush(push, bucket);
}

Decision BulkSynchronous::OnPull(const PullFacts& pull, const BucketFacts& bucket) const {
  return rounds_.OnPull(pull, bucket);
}

Decision BulkSynchronous::OnRosterChange(const BucketFacts& bucket) const {
  return rounds_.OnRosterChange(bucket);
}

Decision BulkSynchronous::OnRoundEnd(const ClusterFacts& cluster) const {
  return rounds_.OnRoundEnd(cluster);
}

Decision BulkSynchronous::OnOpening(const ClusterFacts& cluster) const {
  return rounds_.OnOpening(cluster);
}

// Grants come from the opening of a round; what that waits for holds the member as well.
Decision BulkSynchronous::OnGrant(const MemberProgress&, const ClusterFacts& cluster) const {
  return rounds_.OnOpening(cluster);
}

}  // namespace lodestar
