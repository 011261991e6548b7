#include "server/sync/roster_rounds.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/sync/refusals.h"

namespace lodestar {
namespace {

bool Contains(absl::Span<const WorkerId> workers, WorkerId worker) {
  return std::binary_search(workers.begin(), workers.end(), worker);
}

// Alive and not counted yet, ascending.
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

// Whom a bucket waits for before its next version.
std::string CollectingText(const BucketFacts& bucket) {
  if (bucket.plan == nullptr) {
    return absl::StrCat("waits for the coordinator to open round ", bucket.version.value());
  }
  const std::vector<WorkerId> missing = Missing(bucket);
  if (missing.empty())
    return absl::StrCat("waits for the update of round ", bucket.version.value());
  return absl::StrCat("round ", bucket.version.value(), " waits for ", WorkersText(missing));
}

}  // namespace

int RosterRounds::Due(int possible) const {
  return quorum_ == 0 ? possible : std::min(quorum_, possible);
}

Decision RosterRounds::OnPush(const PushFacts& push, const BucketFacts& bucket) const {
  if (auto refusal = RefusePush(push, takes_pseudo_gradients_)) return *std::move(refusal);
  const int64_t open = bucket.version.value();
  if (push.round.value() < open) {
    return Decision::Late(absl::StrCat("round ", push.round.value(),
                                       " was committed without worker ", push.worker.value(),
                                       "; the open round is ", open));
  }
  if (push.round.value() > open) {
    return Decision::Reject(absl::StatusCode::kFailedPrecondition,
                            absl::StrCat("worker ", push.worker.value(), " sent round ",
                                         push.round.value(), ", expected is round ", open,
                                         "; pull version ", push.round.value(), " first"));
  }
  if (bucket.plan == nullptr) return Decision::Hold(CollectingText(bucket));
  if (!Contains(bucket.live, push.worker)) {
    return Decision::Reject(
        absl::StatusCode::kFailedPrecondition,
        absl::StrCat("worker ", push.worker.value(), " is not in the roster of round ", open,
                     "; ask for a grant"));
  }
  std::vector<WorkerId> missing = Missing(bucket);
  const int contributed = static_cast<int>(bucket.contributed.size());
  const int due = Due(contributed + static_cast<int>(missing.size()));
  if (fixed_order()) {
    auto mine = std::lower_bound(missing.begin(), missing.end(), push.worker);
    if (mine != missing.begin()) {
      missing.erase(mine, missing.end());
      return Decision::Hold(absl::StrCat("round ", open, ": worker ", push.worker.value(),
                                         " comes after ", WorkersText(missing),
                                         " in the order of summation"));
    }
  }
  if (contributed + 1 >= due) return Decision::Apply(absl::StrCat("round ", open, " is complete"));
  std::erase(missing, push.worker);
  return Decision::Accumulate(absl::StrCat("round ", open, " waits for ", WorkersText(missing)));
}

Decision RosterRounds::OnPull(const PullFacts& pull, const BucketFacts& bucket) const {
  if (auto refusal = RefusePull(pull)) return *std::move(refusal);
  if (bucket.version >= pull.min_version) return Decision::Apply();
  return Decision::Hold(
      absl::StrCat("version ", pull.min_version.value(), ": ", CollectingText(bucket)));
}

Decision RosterRounds::OnRosterChange(const BucketFacts& bucket) const {
  if (bucket.plan == nullptr) return Decision::Hold(CollectingText(bucket));
  const int contributed = static_cast<int>(bucket.contributed.size());
  const int missing = static_cast<int>(Missing(bucket).size());
  if (contributed == 0 && missing == 0) {
    return Decision{Action::kDrop,
                    absl::StrCat("round ", bucket.version.value(),
                                 ": everyone was lost before contributing; no update")};
  }
  if (contributed >= Due(contributed + missing)) {
    return Decision::Apply(absl::StrCat("round ", bucket.version.value(), " goes on with the ",
                                        contributed, " contributions that came"));
  }
  return Decision::Hold(CollectingText(bucket));
}

Decision RosterRounds::OnRoundEnd(const ClusterFacts& cluster) const {
  if (!cluster.open_round.has_value()) return Decision::Apply("no round is open");
  const OpenRoundFacts& open = *cluster.open_round;
  if (open.reported >= Due(open.reported + static_cast<int>(open.missing.size()))) {
    return Decision::Apply(absl::StrCat("round ", open.round.value(), " is complete"));
  }
  return Decision::Hold(
      absl::StrCat("round ", open.round.value(), " waits for ", NamesText(open.missing)));
}

Decision RosterRounds::OnOpening(const ClusterFacts& cluster) const {
  if (Decision end = OnRoundEnd(cluster); end.action != Action::kApply) return end;
  if (auto wait = AwaitMembers(cluster)) return *std::move(wait);
  const int members = static_cast<int>(cluster.members.size());
  std::vector<MemberProgress> busy;
  int stragglers = 0;
  for (const MemberProgress& member : cluster.members) {
    if (!member.waiting) busy.push_back(member);
    if (member.working) ++stragglers;
  }
  // With a quorum the next round does not wait for the stragglers of the last.
  const int required = cluster.required.count;
  const int wanted = quorum_ == 0 ? required : std::max(Due(members), required - stragglers);
  const int waiting = members - static_cast<int>(busy.size());
  if (waiting >= wanted) return Decision::Apply();
  return Decision::Hold(absl::StrCat("waits for ", NamesText(busy), " to ask for work (", waiting,
                                     " of ", wanted, " have)"));
}

}  // namespace lodestar
