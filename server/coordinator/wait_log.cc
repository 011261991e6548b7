// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/wait_log.h"

#include <utility>

namespace lodestar::coordinator {

bool WaitLog::IsDue(absl::Time now) {
  if (now - looked_at_ < kLookInterval) return false;
  looked_at_ = now;
  return true;
}

bool WaitLog::Look(absl::string_view wait, absl::Duration patience, absl::Time now) {
  if (wait != wait_) {
    wait_ = std::string(wait);
    since_ = now;
    is_told_ = false;
  }
  if (wait_.empty() || now - since_ < patience) return false;
  return !std::exchange(is_told_, true);
}

}  // namespace lodestar::coordinator
