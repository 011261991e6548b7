// Times of day, and measured and estimated durations, for people. Settings are printed exactly,
// with absl::FormatDuration().
#pragma once

#include <string>

#include "absl/time/time.h"

namespace lodestar {

// "0s", "2.5s", "1m30s", "5h2m": in tenths of a second below ten seconds, in minutes from an hour
// on, else in seconds. What is left over is cut off. A negative duration gives "0s".
std::string DurationText(absl::Duration duration);

// "2026-01-02 03:04:05 UTC".
std::string UtcText(absl::Time time);

}  // namespace lodestar
