// SPDX-License-Identifier: Apache-2.0

// The learning rate as a pure function of global progress.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/runtime/kind_names.h"

namespace lodestar::job {

enum class ScheduleKind : uint8_t { kConstant, kCosine, kLinear };
constexpr auto KindNames(ScheduleKind) {
  return TableOf<ScheduleKind>("lr_schedule", {{ScheduleKind::kConstant, "constant"},
                                               {ScheduleKind::kCosine, "cosine"},
                                               {ScheduleKind::kLinear, "linear"}});
}

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 1e-3;
  double minimum = 0.0;  // kCosine and kLinear reach it at total_rounds
  int64_t warmup_rounds = 0;
  int64_t total_rounds = 1;

  // Returns the learning rate of the step that begins at `progress` and has the length `step`. Both
  // are in rounds, because a round may have many local steps. During warm-up the rate rises
  // linearly, as in nanoGPT: peak * (progress + step) / (warmup_rounds + step). After total_rounds
  // the rate is the minimum, unless the schedule is constant.
  double At(double progress, double step = 1.0) const;
};

}  // namespace lodestar::job
