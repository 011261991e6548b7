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

  // Of the step that begins at `progress` and takes `step`, both in rounds: a round of many local
  // steps has many. Warm-up rises with each step, in a line that starts one step above 0 and is at
  // peak at warmup_rounds, as nanoGPT's. Past total_rounds: minimum.
  double At(double progress, double step = 1.0) const;
};

absl::StatusOr<ScheduleKind> ParseScheduleKind(absl::string_view name);
absl::string_view ScheduleKindName(ScheduleKind kind);

}  // namespace lodestar
