// How the contributions of a round are combined where some of them may be wild: coordinate by
// coordinate, without the lowest and the highest values (trimmed mean, and coordinate-wise median;
// Yin et al. 2018, arXiv:1803.01498). Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// One round has at most this many contributions: each is held until the last is there.
inline constexpr int kMaxRobustContributions = 32;

struct RobustMean {
  enum class Kind : uint8_t {
    kNone,     // the plain mean: all that come count
    kMedian,   // the value in the middle, or the mean of the two there
    kTrimmed,  // the mean without the `trim` lowest and the `trim` highest values
  };
  Kind kind = Kind::kNone;
  int trim = 0;  // of kTrimmed

  bool is_robust() const { return kind != Kind::kNone; }
  // How many values are left out at either end of so many, of which at least one stays.
  int TrimOf(int num_contributions) const;
  // With fewer contributions than this, it leaves out fewer values than it should, or none.
  int MinContributions() const;
  friend bool operator==(const RobustMean&, const RobustMean&) = default;
};

// "none", "median" or "trimmed:2", as --robust_mean takes it. Errors: InvalidArgument, naming the
// flag, the value and what is allowed.
absl::StatusOr<RobustMean> ParseRobustMean(absl::string_view text);
std::string RobustMeanText(const RobustMean& mean);
// What ParseRobustMean() cannot give. Errors: InvalidArgument.
absl::Status ValidateRobustMean(const RobustMean& mean);

}  // namespace lodestar
