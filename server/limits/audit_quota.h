// Limits how many refusals of one identity go into the log, so that an identity that asks again and
// again for what it may not call fills no disk. Pure.
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
  static constexpr int kLinesPerMinute = 3;  // of one identity
  // Those beyond share the quota of one, until others have been silent for a minute.
  static constexpr size_t kMaxIdentities = 1024;

  // Whether a refusal of `identity` is for the log, and how many of it were not since the last one
  // that was; nothing: it is not.
  std::optional<int> Take(absl::string_view identity, absl::Time now);

 private:
  struct Minute {
    absl::Time begin;
    int lines = 0;
    int left_out = 0;
  };

  std::map<std::string, Minute, std::less<>> minutes_;  // by identity; "": those beyond
};

}  // namespace lodestar::limits
