#include "server/sync/refusals.h"

#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

std::string LifeText(WorkerId worker, Incarnation incarnation) {
  return absl::StrCat("incarnation ", incarnation.value(), " of worker ", worker.value());
}

std::string EndedText(WorkerId worker, Incarnation incarnation) {
  return absl::StrCat(LifeText(worker, incarnation),
                      " is over (lease expired, left, or replaced); register again");
}

}  // namespace

std::optional<Decision> RefusePush(const PushFacts& push, bool takes_pseudo_gradients) {
  if (push.is_pseudo_gradient != takes_pseudo_gradients) {
    const char* const wanted = takes_pseudo_gradients ? "pseudo-gradients" : "gradients";
    const char* const seen = push.is_pseudo_gradient ? "a pseudo-gradient" : "a gradient";
    return Decision::Reject(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("this job takes ", wanted, ", worker ", push.worker.value(), " sent ", seen,
                     "; compare the modes of the job and of the client"));
  }
  // A repeat of what was counted is harmless whoever sends it: it may be the retry of the last push
  // before its worker left.
  if (push.last_counted.has_value()) {
    const CountedContribution& last = *push.last_counted;
    if (push.incarnation < last.incarnation) {
      return Decision::Reject(absl::StatusCode::kAborted, EndedText(push.worker, push.incarnation));
    }
    if (push.incarnation == last.incarnation && push.round <= last.round) {
      return Decision::Duplicate(absl::StrCat("round ", push.round.value(), " of worker ",
                                              push.worker.value(), " was counted before"));
    }
  }
  switch (push.standing) {
    case Standing::kMember:
      return std::nullopt;
    case Standing::kGone:
      return Decision::Reject(absl::StatusCode::kAborted, EndedText(push.worker, push.incarnation));
    case Standing::kUnknown:
      break;
  }
  return Decision::Reject(absl::StatusCode::kUnavailable,
                          absl::StrCat(LifeText(push.worker, push.incarnation),
                                       " is not announced to this shard yet; send it again"));
}

std::optional<Decision> RefusePull(const PullFacts& pull) {
  if (pull.standing != Standing::kGone) return std::nullopt;
  return Decision::Reject(absl::StatusCode::kAborted, EndedText(pull.worker, pull.incarnation));
}

std::optional<Decision> AwaitMembers(const ClusterFacts& cluster) {
  const int members = static_cast<int>(cluster.members.size());
  const int lacking = cluster.required.count - members;
  if (lacking <= 0) return std::nullopt;
  return Decision::Hold(absl::StrCat("waits for ", lacking, " more worker", lacking > 1 ? "s" : "",
                                     " to join (", members, " of --", cluster.required.flag, "=",
                                     cluster.required.count, ")"));
}

}  // namespace lodestar
