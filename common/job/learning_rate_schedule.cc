// SPDX-License-Identifier: Apache-2.0

#include "common/job/learning_rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lodestar::job {

double LearningRateSchedule::At(double progress, double step) const {
  const double warmup = static_cast<double>(warmup_rounds);
  const double total = static_cast<double>(total_rounds);
  progress = std::max(progress, 0.0);
  if (progress < warmup) return peak * (progress + step) / (warmup + step);
  if (!falls()) return peak;
  if (progress >= total) return minimum;
  const double decayed = (progress - warmup) / (total - warmup);
  const double share = kind == ScheduleKind::kCosine
                           ? 0.5 * (1.0 + std::cos(std::numbers::pi * decayed))
                           : 1.0 - decayed;
  return minimum + share * (peak - minimum);
}

}  // namespace lodestar::job
