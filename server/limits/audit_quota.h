// SPDX-License-Identifier: Apache-2.0

// AuditQuota limits how many refusals of one identity are logged. So an identity that repeats
// forbidden calls does not fill the disk. It does no I/O and has no lock.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::limits {

class AuditQuota {
 public:
  static constexpr int kLinesPerMinute = 3;  // per identity
  // Maximum number of identities that have a quota of their own. All further identities share one
  // quota. If an identity has been silent for a minute, its place is free for another.
  static constexpr size_t kMaxIdentities = 1024;

  // Returns nothing if a refusal of `identity` must not be logged. If it may be logged, returns how
  // many refusals were not logged since the last logged one.
  std::optional<int> Take(absl::string_view identity, absl::Time now);

 private:
  struct Minute {
    absl::Time begin;
    int lines = 0;
    int left_out = 0;
  };

  std::map<std::string, Minute, std::less<>> minutes_;  // keyed by identity; "" is the shared quota
};

}  // namespace lodestar::limits
