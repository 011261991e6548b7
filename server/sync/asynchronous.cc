// SPDX-License-Identifier: Apache-2.0

#include "server/sync/asynchronous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lodestar::sync {

Decision AsynchronousBuckets::OnNewPush(const PushFacts& push, const BucketFacts& bucket) const {
  if (push.base_version > bucket.version) {
    return Decision::Reject(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("worker ", push.worker.value(), " computed round ", push.round.value(),
                     " on version ", push.base_version.value(),
                     " of the weights, but the server's bucket is only at version ",
                     bucket.version.value(), "; the worker must pull again"));
  }
  return Decision::ApplyAlone(absl::StrCat("staleness ", bucket.version - push.base_version));
}

Decision AsynchronousLocalBuckets::OnNewPush(const PushFacts& push,
                                             const BucketFacts& bucket) const {
  const int64_t staleness = bucket.version - push.base_version;
  if (config_.max_staleness >= 0 && staleness > config_.max_staleness) {
    return Decision::Late(
        absl::StrCat("round ", push.round.value(), " of worker ", push.worker.value(),
                     " was computed on weights that are ", staleness,
                     " updates old, more than --max_staleness=", config_.max_staleness));
  }
  return AsynchronousBuckets::OnNewPush(push, bucket);
}

Decision AsynchronousBuckets::OnLivePull(const PullFacts&, const BucketFacts&) const {
  return Decision::Apply();
}

Decision AsynchronousBuckets::OnRosterChange(const BucketFacts&) const {
  return Decision::Hold("");
}

// In asynchronous modes, each round has a roster of one member.
Decision AsynchronousCluster::OnRoundEnd(const OpenRoundFacts& round) const {
  if (round.missing.empty()) return Decision::Apply();
  return Decision::Hold(
      absl::StrCat("round ", round.round.value(), " waits for ", round.missing.front().name));
}

Decision AsynchronousCluster::OnOpening(const ClusterFacts& cluster) const {
  return AwaitMembers(cluster);
}

const MemberProgress* AsynchronousCluster::ToMeet(const MemberProgress& member,
                                                  const ClusterFacts& cluster) const {
  if (config_.grace <= 0.0 || !member.usual_round.has_value()) return nullptr;
  const absl::Duration grace = config_.grace * *member.usual_round;
  const MemberProgress* next = nullptr;
  absl::Duration next_due;
  for (const MemberProgress& other : cluster.members) {
    if (!other.working || !other.usual_round.has_value()) continue;
    // If a member is late by more than the grace period, it may be gone. So no other member waits
    // for it.
    const absl::Duration due = *other.usual_round - other.since;
    if (due > grace - member.since || due < -grace) continue;
    if (next != nullptr && next_due <= due) continue;
    next = &other;
    next_due = due;
  }
  return member.since < grace ? next : nullptr;
}

Decision AsynchronousCluster::OnGrant(const MemberProgress& member,
                                      const ClusterFacts& cluster) const {
  if (config_.max_rounds_ahead >= 0) {
    auto slowest = std::min_element(cluster.members.begin(), cluster.members.end(),
                                    [](const MemberProgress& a, const MemberProgress& b) {
                                      return a.rounds_completed < b.rounds_completed;
                                    });
    if (slowest == cluster.members.end()) return Decision::Apply();
    const int64_t ahead = member.rounds_completed - slowest->rounds_completed;
    if (ahead > config_.max_rounds_ahead) {
      return Decision::Hold(
          absl::StrCat("the next round of ", member.name, " would be ", ahead, " rounds ahead of ",
                       slowest->name, ", more than --max_rounds_ahead=", config_.max_rounds_ahead,
                       "; waits for ", slowest->name));
    }
  }
  if (const MemberProgress* const other = ToMeet(member, cluster); other != nullptr) {
    return Decision::Hold(absl::StrCat(member.name, " waits for ", other->name,
                                       ", whose contribution is expected at any moment"));
  }
  return Decision::Apply();
}

double AsyncLearningRateFactor(job::StalenessScaling scaling, int64_t staleness) {
  if (scaling == job::StalenessScaling::kNone) return 1.0;
  return 1.0 / (1.0 + static_cast<double>(std::max<int64_t>(staleness, 0)));
}

}  // namespace lodestar::sync
