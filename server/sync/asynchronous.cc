#include "server/sync/asynchronous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/sync/refusals.h"

namespace lodestar {

Decision Asynchronous::OnPush(const PushFacts& push, const BucketFacts& bucket) const {
  if (auto refusal = RefusePush(push, takes_pseudo_gradients())) return *std::move(refusal);
  if (push.base_version > bucket.version) {
    return Decision::Reject(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("worker ", push.worker.value(), " computed round ", push.round.value(),
                     " on version ", push.base_version.value(), ", this bucket is at ",
                     bucket.version.value(), "; pull again"));
  }
  return Decision::Apply(absl::StrCat("staleness ", bucket.version - push.base_version));
}

Decision Asynchronous::OnPull(const PullFacts& pull, const BucketFacts& bucket) const {
  if (auto refusal = RefusePull(pull)) return *std::move(refusal);
  if (bucket.version >= pull.min_version) return Decision::Apply();
  return Decision::Hold(absl::StrCat("version ", pull.min_version.value(), " waits for ",
                                     pull.min_version - bucket.version,
                                     " more contributions by any worker"));
}

Decision Asynchronous::OnRosterChange(const BucketFacts&) const {
  return Decision::Hold("asynchronous: waits for no one in particular");
}

// Each contribution is a round of its own and over when it is reported.
Decision Asynchronous::OnRoundEnd(const ClusterFacts&) const { return Decision::Apply(); }

Decision Asynchronous::OnOpening(const ClusterFacts& cluster) const {
  return AwaitMembers(cluster).value_or(Decision::Apply());
}

Decision Asynchronous::OnGrant(const MemberProgress& member, const ClusterFacts& cluster) const {
  if (Decision opening = OnOpening(cluster); opening.action != Action::kApply) return opening;
  if (max_rounds_ahead_ < 0) return Decision::Apply();
  auto slowest = std::min_element(cluster.members.begin(), cluster.members.end(),
                                  [](const MemberProgress& a, const MemberProgress& b) {
                                    return a.rounds_completed < b.rounds_completed;
                                  });
  if (slowest == cluster.members.end()) return Decision::Apply();
  const int64_t ahead = member.rounds_completed - slowest->rounds_completed;
  if (ahead <= max_rounds_ahead_) return Decision::Apply();
  return Decision::Hold(absl::StrCat(member.name, " is ", ahead, " rounds ahead of ", slowest->name,
                                     " (--max_rounds_ahead=", max_rounds_ahead_, "); waits for ",
                                     slowest->name));
}

}  // namespace lodestar
