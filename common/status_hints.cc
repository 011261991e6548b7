#include "common/status_hints.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

constexpr char kRetryAfterMs[] = "lodestar/retry_after_ms";
constexpr char kCoordinator[] = "lodestar/coordinator";
constexpr char kJobOver[] = "lodestar/job_over";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration retry_after) {
  const absl::Duration rounded = absl::Ceil(retry_after, absl::Milliseconds(1));
  status.SetPayload(kRetryAfterMs, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(rounded))));
  return status;
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryAfterMs);
  int64_t milliseconds = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &milliseconds)) {
    return std::nullopt;
  }
  return absl::Milliseconds(milliseconds);
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

}  // namespace lodestar
