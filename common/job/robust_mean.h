// SPDX-License-Identifier: Apache-2.0

// Combines the contributions of a round if a few of them may be wrong: coordinate by coordinate,
// without the lowest and the highest values (trimmed mean and coordinate-wise median; Yin et al.
// 2018, arXiv:1803.01498). Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::job {

// Maximum number of contributions to a round. Each is held in memory until the last has arrived.
inline constexpr int kMaxRobustContributions = 32;

struct RobustMean {
  enum class Kind : uint8_t {
    kNone,     // the plain mean: all contributions count
    kMedian,   // the middle value, or the mean of the two middle values
    kTrimmed,  // the mean without the `trim` lowest and the `trim` highest values
  };
  Kind kind = Kind::kNone;
  int trim = 0;  // used by kTrimmed

  bool is_robust() const { return kind != Kind::kNone; }
  // Returns how many of the lowest of `num_contributions` values are left out. As many of the
  // highest are left out. At least one value is used.
  int TrimOf(int num_contributions) const;
  // Returns the smallest number of contributions for which TrimOf() is `trim`. For a median it is
  // 3, and for the plain mean 1.
  int MinContributions() const;
  friend bool operator==(const RobustMean&, const RobustMean&) = default;
};

// Convert between a RobustMean and a text in the form of --robust_mean: "none", "median" or
// "trimmed:2". Errors: InvalidArgument naming the flag, the value and what is allowed.
absl::StatusOr<RobustMean> ParseRobustMean(absl::string_view text);
std::string RobustMeanText(const RobustMean& mean);
// Checks a value that does not come from ParseRobustMean(). Errors: InvalidArgument.
absl::Status ValidateRobustMean(const RobustMean& mean);

}  // namespace lodestar::job
