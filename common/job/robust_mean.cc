// SPDX-License-Identifier: Apache-2.0

#include "common/job/robust_mean.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/runtime/status_macros.h"

namespace lodestar::job {
namespace {

constexpr absl::string_view kTrimmedPrefix = "trimmed:";
constexpr int kMaxTrim = (kMaxRobustContributions - 1) / 2;

absl::Status Refuse(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--robust_mean=", text, " ", why,
                                                 "; allowed: none, median, trimmed:K with K ",
                                                 "from 1 to ", kMaxTrim));
}

}  // namespace

int RobustMean::TrimOf(int num_contributions) const {
  const int most = std::max(num_contributions - 1, 0) / 2;
  switch (kind) {
    case Kind::kNone:
      return 0;
    case Kind::kMedian:
      return most;
    case Kind::kTrimmed:
      return std::min(trim, most);
  }
  return 0;
}

int RobustMean::MinContributions() const {
  switch (kind) {
    case Kind::kNone:
      return 1;
    case Kind::kMedian:
      return 3;  // the median of two values is their mean, which leaves none out
    case Kind::kTrimmed:
      return 2 * trim + 1;
  }
  return 1;
}

absl::StatusOr<RobustMean> ParseRobustMean(absl::string_view text) {
  RobustMean mean;
  if (text == "none") return mean;
  if (text == "median") {
    mean.kind = RobustMean::Kind::kMedian;
    return mean;
  }
  absl::string_view trim = text;
  if (!absl::ConsumePrefix(&trim, kTrimmedPrefix)) return Refuse(text, "is unknown");
  if (!absl::SimpleAtoi(trim, &mean.trim))
    return Refuse(text, "has no whole number after 'trimmed:'");
  mean.kind = RobustMean::Kind::kTrimmed;
  RETURN_IF_ERROR(ValidateRobustMean(mean));
  return mean;
}

std::string RobustMeanText(const RobustMean& mean) {
  switch (mean.kind) {
    case RobustMean::Kind::kNone:
      return "none";
    case RobustMean::Kind::kMedian:
      return "median";
    case RobustMean::Kind::kTrimmed:
      return absl::StrCat(kTrimmedPrefix, mean.trim);
  }
  return "unknown";
}

absl::Status ValidateRobustMean(const RobustMean& mean) {
  if (mean.kind != RobustMean::Kind::kTrimmed) return absl::OkStatus();
  if (mean.trim == 0) return Refuse(RobustMeanText(mean), "trims nothing");
  if (mean.trim >= 1 && mean.trim <= kMaxTrim) return absl::OkStatus();
  return Refuse(RobustMeanText(mean), "is out of range");
}

}  // namespace lodestar::job
