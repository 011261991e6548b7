// SPDX-License-Identifier: Apache-2.0

// Formats times of day and measured or estimated durations for readers. Settings are printed
// exactly, with absl::FormatDuration().
#pragma once

#include <string>

#include "absl/time/time.h"

namespace lodestar {

// Returns text such as "0s", "2.5s", "1m30s", "5h2m". Below ten seconds, tenths of a second are
// shown. From an hour on, only hours and minutes are shown. Smaller parts are cut off. A negative
// duration gives "0s".
std::string DurationText(absl::Duration duration);

// Returns text such as "2026-01-02 03:04:05 UTC".
std::string UtcText(absl::Time time);

}  // namespace lodestar
