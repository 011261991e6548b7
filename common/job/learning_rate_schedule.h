// Learning rate as a pure function of global progress.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/runtime/kind_names.h"

namespace lodestar {

enum class ScheduleKind : uint8_t { kConstant, kCosine, kLinear };
template <>
struct KindNames<ScheduleKind> {
  static constexpr absl::string_view kFlag = "lr_schedule";
  static constexpr NamedKind<ScheduleKind> kRows[] = {{ScheduleKind::kConstant, "constant"},
                                                      {ScheduleKind::kCosine, "cosine"},
                                                      {ScheduleKind::kLinear, "linear"}};
};

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 1e-3;
  double minimum = 0.0;  // reached at total_rounds by kCosine and kLinear
  int64_t warmup_rounds = 0;
  int64_t total_rounds = 1;

  // Returns the learning rate of the step that begins at `progress` and takes `step`, both in
  // rounds: a round of many local steps has many rates. Warm-up rises with each step, in a line
  // that starts one step above 0 and is at peak at warmup_rounds, as nanoGPT's. Past total_rounds
  // the rate is the minimum, unless the schedule is constant.
  double At(double progress, double step = 1.0) const;
};

}  // namespace lodestar
