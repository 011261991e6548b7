// SPDX-License-Identifier: Apache-2.0

#include "worker/stall_watch.h"

#include <algorithm>

namespace lodestar::worker {

absl::Duration StallWatch::Look(absl::Time now, const std::optional<Work>& work) {
  const absl::Duration passed = now - looked_at_.value_or(now);
  looked_at_ = now;
  if (work_.has_value()) still_ += std::clamp(passed, absl::ZeroDuration(), kLongestLook);
  if (work_ != work) {
    if (work_.has_value()) {
      absl::Duration& longest = longest_[work_->what];
      longest = std::max(longest, still_ / std::max<int64_t>(1, work_->size));
    }
    work_ = work;
    still_ = absl::ZeroDuration();
  }
  if (!work_.has_value() || still_ <= PatienceWith(*work_)) return absl::ZeroDuration();
  return still_;
}

absl::Duration StallWatch::PatienceWith(const Work& work) const {
  const auto past = longest_.find(work.what);
  if (past == longest_.end()) return work.first_factor * shortest_;
  return std::max(shortest_, kFactor * std::max<int64_t>(1, work.size) * past->second);
}

}  // namespace lodestar::worker
