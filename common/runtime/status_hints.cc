// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/status_hints.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

constexpr char kRetryAfterMs[] = "lodestar/retry_after_ms";
constexpr char kTimesRenewed[] = "lodestar/times_renewed";
constexpr char kCoordinator[] = "lodestar/coordinator";
constexpr char kJobOver[] = "lodestar/job_over";
constexpr char kAnswered[] = "lodestar/answered";

std::optional<int64_t> NumberOf(const absl::Status& status, absl::string_view hint) {
  const auto payload = status.GetPayload(hint);
  int64_t number = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &number)) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration retry_after) {
  const absl::Duration rounded = absl::Ceil(retry_after, absl::Milliseconds(1));
  status.SetPayload(kRetryAfterMs, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(rounded))));
  return status;
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const auto milliseconds = NumberOf(status, kRetryAfterMs);
  if (!milliseconds.has_value()) return std::nullopt;
  return absl::Milliseconds(*milliseconds);
}

absl::Status WithTimesRenewed(absl::Status status, int64_t times) {
  status.SetPayload(kTimesRenewed, absl::Cord(absl::StrCat(times)));
  return status;
}

std::optional<int64_t> TimesRenewedOf(const absl::Status& status) {
  return NumberOf(status, kTimesRenewed);
}

absl::Status WithCoordinator(absl::Status status, absl::string_view address) {
  status.SetPayload(kCoordinator, absl::Cord(address));
  return status;
}

std::optional<std::string> CoordinatorOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kCoordinator);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

absl::Status WithJobOver(absl::Status status) {
  status.SetPayload(kJobOver, absl::Cord("yes"));
  return status;
}

bool IsJobOver(const absl::Status& status) { return status.GetPayload(kJobOver).has_value(); }

absl::Status WithAnswered(absl::Status status) {
  status.SetPayload(kAnswered, absl::Cord("yes"));
  return status;
}

bool IsAnswered(const absl::Status& status) {
  return status.ok() || status.GetPayload(kAnswered).has_value();
}

}  // namespace lodestar
