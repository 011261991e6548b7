// SPDX-License-Identifier: Apache-2.0

// The learning rate as a pure function of global progress.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/runtime/kind_names.h"

namespace lodestar::job {

// The largest learning rate of a job, a grant or a contribution.
inline constexpr double kMaxLearningRate = 1e6;

// kProgram: the rates of the programs' own optimizers hold, see TakesProgramRates().
enum class ScheduleKind : uint8_t { kConstant, kCosine, kLinear, kProgram };
constexpr auto KindNames(ScheduleKind) {
  return TableOf<ScheduleKind>("lr_schedule", {{ScheduleKind::kConstant, "constant"},
                                               {ScheduleKind::kCosine, "cosine"},
                                               {ScheduleKind::kLinear, "linear"},
                                               {ScheduleKind::kProgram, "program"}});
}

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 1e-3;
  double minimum = 0.0;  // kCosine and kLinear reach it at total_rounds
  int64_t warmup_rounds = 0;
  int64_t total_rounds = 1;

  // Returns true if the rate falls to `minimum`.
  bool falls() const { return kind == ScheduleKind::kCosine || kind == ScheduleKind::kLinear; }

  // Returns the learning rate of the step that begins at `progress` and has the length `step`. Both
  // are in rounds, because a round may have many local steps. During warm-up the rate rises
  // linearly, as in nanoGPT: peak * (progress + step) / (warmup_rounds + step). After total_rounds
  // the rate is the minimum if the rate falls.
  double At(double progress, double step = 1.0) const;
};

}  // namespace lodestar::job
