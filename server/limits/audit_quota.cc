// SPDX-License-Identifier: Apache-2.0

#include "server/limits/audit_quota.h"

#include <utility>

namespace lodestar::limits {

std::optional<int> AuditQuota::Take(absl::string_view identity, absl::Time now) {
  const auto is_over = [now](const Minute& minute) {
    return now - minute.begin >= absl::Minutes(1);
  };
  auto found = minutes_.find(identity);
  if (found == minutes_.end() && minutes_.size() >= kMaxIdentities) {
    std::erase_if(minutes_, [&](const auto& entry) { return is_over(entry.second); });
    if (minutes_.size() >= kMaxIdentities) identity = "";
  }
  if (found == minutes_.end()) {
    found = minutes_.try_emplace(std::string(identity), Minute{.begin = now}).first;
  }
  Minute& minute = found->second;
  if (is_over(minute)) {
    minute.begin = now;
    minute.lines = 0;
  }
  if (minute.lines >= kLinesPerMinute) {
    ++minute.left_out;
    return std::nullopt;
  }
  ++minute.lines;
  return std::exchange(minute.left_out, 0);
}

}  // namespace lodestar::limits
