// SPDX-License-Identifier: Apache-2.0

#include "server/sync/bucket_policy.h"

#include "absl/strings/str_cat.h"

namespace lodestar::sync {
namespace {

std::string LifeText(WorkerId worker, Incarnation incarnation) {
  return absl::StrCat("incarnation ", incarnation.value(), " of worker ", worker.value());
}

Decision RefuseEnded(WorkerId worker, Incarnation incarnation) {
  return Decision::Reject(
      absl::StatusCode::kAborted,
      absl::StrCat("the membership of worker ", worker.value(),
                   " has ended (lease expired, left, dropped or replaced; incarnation ",
                   incarnation.value(), "); the worker must register again"));
}

}  // namespace

Decision BucketPolicy::OnPush(const PushFacts& push, const BucketFacts& bucket) const {
  if (push.last_counted.has_value()) {
    const CountedContribution& last = *push.last_counted;
    if (push.incarnation < last.incarnation) return RefuseEnded(push.worker, push.incarnation);
    if (push.incarnation == last.incarnation && push.round <= last.round) {
      return Decision::Duplicate(absl::StrCat("round ", push.round.value(), " of worker ",
                                              push.worker.value(), " has been counted already"));
    }
  }
  switch (push.standing) {
    case Standing::kMember:
      return OnNewPush(push, bucket);
    case Standing::kGone:
      return RefuseEnded(push.worker, push.incarnation);
    case Standing::kUnknown:
      break;
  }
  return Decision::Hold(absl::StrCat("waits for the coordinator to announce ",
                                     LifeText(push.worker, push.incarnation)));
}

Decision BucketPolicy::OnPull(const PullFacts& pull, const BucketFacts& bucket) const {
  if (pull.standing == Standing::kGone) return RefuseEnded(pull.worker, pull.incarnation);
  return OnLivePull(pull, bucket);
}

}  // namespace lodestar::sync
