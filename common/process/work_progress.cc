// SPDX-License-Identifier: Apache-2.0

#include "common/process/work_progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/runtime/time_text.h"

namespace lodestar::process {

bool WorkProgress::OnPiece(int64_t amount, absl::Time now) {
  done_ = begun_;
  begun_ += amount;
  if (now - told_ < kInterval) return false;
  told_ = now;
  return true;
}

std::string WorkProgress::ShareText(absl::Time now) const {
  const double share =
      static_cast<double>(done_) / static_cast<double>(std::max<int64_t>(1, total_));
  std::string text = absl::StrFormat("%.0f %%", 100 * share);
  if (done_ > 0 && done_ < total_) {
    const absl::Duration left = (now - began_) * (1 / share - 1);
    absl::StrAppend(&text, ", about ", DurationText(absl::Ceil(left, absl::Seconds(1))), " more");
  }
  return text;
}

}  // namespace lodestar::process
