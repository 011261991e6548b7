#include "common/learning_rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"

namespace lodestar {

double LearningRateSchedule::At(double progress, double step) const {
  const double warmup = static_cast<double>(warmup_rounds);
  const double total = static_cast<double>(total_rounds);
  progress = std::max(progress, 0.0);
  if (progress < warmup) return peak * (progress + step) / (warmup + step);
  if (kind == ScheduleKind::kConstant) return peak;
  if (progress >= total) return minimum;
  const double decayed = (progress - warmup) / (total - warmup);
  const double share = kind == ScheduleKind::kCosine
                           ? 0.5 * (1.0 + std::cos(std::numbers::pi * decayed))
                           : 1.0 - decayed;
  return minimum + share * (peak - minimum);
}

absl::StatusOr<ScheduleKind> ParseScheduleKind(absl::string_view name) {
  for (ScheduleKind kind :
       {ScheduleKind::kConstant, ScheduleKind::kCosine, ScheduleKind::kLinear}) {
    if (name == ScheduleKindName(kind)) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--lr_schedule=", name, " is unknown; allowed: constant, cosine, linear"));
}

absl::string_view ScheduleKindName(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kConstant:
      return "constant";
    case ScheduleKind::kCosine:
      return "cosine";
    case ScheduleKind::kLinear:
      return "linear";
  }
  return "unknown";
}

}  // namespace lodestar
