// Learning rate as a pure function of global progress.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

enum class ScheduleKind : uint8_t { kConstant, kCosine, kLinear };

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 1e-3;
  double minimum = 0.0;  // reached at total_rounds by kCosine and kLinear
  int64_t warmup_rounds = 0;
  int64_t total_rounds = 1;

  // `progress` in rounds, fractional within a round of many local steps. Warm-up rises linearly and
  // reaches peak at warmup_rounds: peak * (progress + 1) / (warmup_rounds + 1), as nanoGPT does.
  // Past total_rounds: minimum.
  double At(double progress) const;
};

absl::StatusOr<ScheduleKind> ParseScheduleKind(absl::string_view name);
absl::string_view ScheduleKindName(ScheduleKind kind);

}  // namespace lodestar
