// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/time_text.h"

namespace lodestar {

std::string DurationText(absl::Duration duration) {
  const absl::Duration unit = duration < absl::Seconds(10) ? absl::Milliseconds(100)
                              : duration < absl::Hours(1)  ? absl::Seconds(1)
                                                           : absl::Minutes(1);
  const absl::Duration shown = absl::Trunc(duration, unit);
  return shown <= absl::ZeroDuration() ? "0s" : absl::FormatDuration(shown);
}

std::string UtcText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

}  // namespace lodestar
