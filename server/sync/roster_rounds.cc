// SPDX-License-Identifier: Apache-2.0

#include "server/sync/roster_rounds.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lodestar::sync {
namespace {

bool Contains(absl::Span<const WorkerId> workers, WorkerId worker) {
  return std::binary_search(workers.begin(), workers.end(), worker);
}

// Returns the workers that are alive and not counted yet, ascending.
std::vector<WorkerId> Missing(const BucketFacts& bucket) {
  std::vector<WorkerId> missing;
  for (WorkerId worker : bucket.live) {
    if (!Contains(bucket.contributed, worker)) missing.push_back(worker);
  }
  return missing;
}

std::string WorkersText(absl::Span<const WorkerId> workers) {
  return absl::StrCat(workers.size() == 1 ? "worker " : "workers ",
                      absl::StrJoin(workers, ", ", [](std::string* out, WorkerId worker) {
                        absl::StrAppend(out, worker.value());
                      }));
}

std::string NamesText(absl::Span<const MemberProgress> members) {
  return absl::StrJoin(members, ", ", [](std::string* out, const MemberProgress& member) {
    absl::StrAppend(out, member.name);
  });
}

// Returns true if the push was computed on fewer samples than were granted. Its worker was told to
// stop, and may be gone before workers with lower ids have pushed.
bool IsPart(const PushFacts& push, const RoundPlan& plan) {
  const RosterMember* const member = plan.Find(push.worker);
  return member != nullptr && push.num_samples > 0 && push.num_samples < member->num_samples;
}

// Returns the number of contributions that a round needs. At most `possible` can come.
int Due(int quorum, int possible) { return quorum == 0 ? possible : std::min(quorum, possible); }

// Returns a text that says which members the bucket waits for.
std::string CollectingText(const BucketFacts& bucket) {
  if (bucket.plan == nullptr) {
    return absl::StrCat("waits for the coordinator to open round ", bucket.round.value());
  }
  const std::vector<WorkerId> missing = Missing(bucket);
  if (missing.empty()) return absl::StrCat("waits for the update of round ", bucket.round.value());
  return absl::StrCat("round ", bucket.round.value(), " waits for ", WorkersText(missing));
}

}  // namespace

Decision RosterBuckets::OnNewPush(const PushFacts& push, const BucketFacts& bucket) const {
  const int64_t open = bucket.round.value();
  if (!push.is_due) {
    return Decision::Reject(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("worker ", push.worker.value(), " sent a part of round ", push.round.value(),
                     " that this round does not exchange (--fragments); use the "
                     "same release for workers and servers"));
  }
  if (push.round < bucket.round) {
    return Decision::Late(absl::StrCat("round ", push.round.value(),
                                       " was completed without worker ", push.worker.value(),
                                       "; the open round is ", open));
  }
  if (push.round > bucket.round && push.round <= bucket.newest_opened + fragments_) {
    return Decision::Hold(
        absl::StrCat("round ", push.round.value(), " waits for the end of round ", open));
  }
  if (push.round > bucket.round) {
    // The servers have gone back to an older state, or the worker has a bug.
    return Decision::Reject(
        absl::StatusCode::kAborted,
        absl::StrCat("worker ", push.worker.value(), " sent round ", push.round.value(),
                     ", but round ", open, " is expected; the worker must register again"));
  }
  if (bucket.plan == nullptr) return Decision::Hold(CollectingText(bucket));
  if (!Contains(bucket.live, push.worker)) {
    return Decision::Reject(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("worker ", push.worker.value(), " does not take part in round ", open,
                     "; the worker must ask for a grant first"));
  }
  if (bucket.is_updating) {
    return Decision::Hold(
        absl::StrCat("round ", open, " waits for the update of round ", open - 1));
  }
  std::vector<WorkerId> missing = Missing(bucket);
  const int contributed = static_cast<int>(bucket.contributed.size());
  const int due = Due(quorum_, contributed + static_cast<int>(missing.size()));
  if (fixed_order() && !IsPart(push, *bucket.plan)) {
    auto mine = std::lower_bound(missing.begin(), missing.end(), push.worker);
    if (mine != missing.begin()) {
      missing.erase(mine, missing.end());
      return Decision::HoldForOrder(absl::StrCat("round ", open, ": worker ", push.worker.value(),
                                                 " comes after ", WorkersText(missing),
                                                 " in the order of summation"));
    }
  }
  if (contributed + 1 >= due) return Decision::Apply(absl::StrCat("round ", open, " is complete"));
  std::erase(missing, push.worker);
  return Decision::Accumulate(absl::StrCat("round ", open, " waits for ", WorkersText(missing)));
}

Decision RosterBuckets::OnLivePull(const PullFacts& pull, const BucketFacts& bucket) const {
  if (bucket.round >= pull.min_round) return Decision::Apply();
  return Decision::Hold(absl::StrCat("the weights for round ", pull.min_round.value(),
                                     " are not ready: ", CollectingText(bucket)));
}

Decision RosterBuckets::OnRosterChange(const BucketFacts& bucket) const {
  // If the round is over, no more contributions will come. The bucket must not wait for the plan or
  // for missing members: this server may have been disconnected when the plan or the loss was
  // announced.
  const bool is_over = bucket.over_before > bucket.round;
  if (bucket.plan == nullptr && !is_over) return Decision::Hold(CollectingText(bucket));
  const bool is_nobodys = bucket.plan != nullptr && bucket.plan->roster.empty();
  if (!bucket.is_due || is_nobodys) return Decision{Action::kDrop, ""};
  const int contributed = static_cast<int>(bucket.contributed.size());
  const int missing = is_over ? 0 : static_cast<int>(Missing(bucket).size());
  if (contributed == 0 && missing == 0) {
    return Decision{
        Action::kDrop,
        absl::StrCat("round ", bucket.round.value(),
                     ": all workers were lost before they contributed, so there is no update")};
  }
  if (contributed >= Due(quorum_, contributed + missing)) {
    return Decision::Apply(absl::StrCat("round ", bucket.round.value(), " is completed with the ",
                                        contributed, " contributions that arrived"));
  }
  return Decision::Hold(CollectingText(bucket));
}

int RosterCluster::max_roster() const { return std::numeric_limits<int>::max(); }

Decision RosterCluster::OnRoundEnd(const OpenRoundFacts& round) const {
  if (round.reported >= Due(quorum_, round.reported + static_cast<int>(round.missing.size()))) {
    return Decision::Apply(absl::StrCat("round ", round.round.value(), " is complete"));
  }
  return Decision::Hold(
      absl::StrCat("round ", round.round.value(), " waits for ", NamesText(round.missing)));
}

Decision RosterCluster::OnOpening(const ClusterFacts& cluster) const {
  if (cluster.open_round.has_value()) {
    if (Decision end = OnRoundEnd(*cluster.open_round); end.action != Action::kApply) return end;
  }
  if (Decision wait = AwaitMembers(cluster); wait.action != Action::kApply) return wait;
  const int members = static_cast<int>(cluster.members.size());
  std::vector<MemberProgress> busy;
  int stragglers = 0;
  for (const MemberProgress& member : cluster.members) {
    if (!member.waiting) busy.push_back(member);
    if (member.working) ++stragglers;
  }
  // With a quorum, members that still work on the last round need not be waited for.
  const int required = cluster.required.count;
  const int wanted =
      quorum_ == 0 ? required : std::max(Due(quorum_, members), required - stragglers);
  const int waiting = members - static_cast<int>(busy.size());
  if (waiting >= wanted) return Decision::Apply();
  return Decision::Hold(absl::StrCat("waits for ", NamesText(busy), " to ask for work (", waiting,
                                     " of ", wanted, " have)"));
}

// Every member that waits when a round opens is in the round.
Decision RosterCluster::OnGrant(const MemberProgress&, const ClusterFacts&) const {
  return Decision::Apply();
}

}  // namespace lodestar::sync
