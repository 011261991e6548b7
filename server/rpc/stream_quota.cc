// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/stream_quota.h"

#include "absl/strings/str_cat.h"

namespace lodestar::rpc {

absl::StatusOr<std::unique_ptr<StreamQuota::Seat>> StreamQuota::Take(WorkerId worker,
                                                                     Caller caller) {
  absl::MutexLock lock(&mutex_);
  const bool is_stranger = caller == Caller::kStranger;
  if (is_stranger && num_strangers_ >= config_.strangers) {
    return absl::ResourceExhaustedError(
        absl::StrCat(num_strangers_,
                     " pushes and pulls are open by workers that the coordinator has not announced "
                     "to this server yet, the maximum; try again later"));
  }
  const auto known = of_workers_.find(worker);
  const Count count = known == of_workers_.end() ? Count() : known->second;
  const int open = is_stranger ? count.strangers : count.members;
  const int most = is_stranger ? config_.per_stranger : config_.per_worker;
  if (worker != WorkerId() && open >= most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", worker.value(), " has ", open,
                     is_stranger ? " pushes and pulls open on this server before it is announced"
                                 : " pushes and pulls open on this server",
                     ", the maximum; try again when one has ended"));
  }
  ++(is_stranger ? of_workers_[worker].strangers : of_workers_[worker].members);
  if (is_stranger) ++num_strangers_;
  return std::make_unique<Seat>(shared_from_this(), worker, caller);
}

void StreamQuota::Free(WorkerId worker, Caller caller) {
  absl::MutexLock lock(&mutex_);
  const auto known = of_workers_.find(worker);
  const bool is_stranger = caller == Caller::kStranger;
  --(is_stranger ? known->second.strangers : known->second.members);
  if (is_stranger) --num_strangers_;
  if (known->second.members == 0 && known->second.strangers == 0) of_workers_.erase(known);
}

}  // namespace lodestar::rpc
