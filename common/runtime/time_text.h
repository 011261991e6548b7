// SPDX-License-Identifier: Apache-2.0

// Formats times and durations for readers. A duration that an operator has set is formatted with
// absl::FormatDuration() instead, because that is exact.
#pragma once

#include <string>

#include "absl/time/time.h"

namespace lodestar {

// Returns text such as "0s", "2.5s", "1m30s", "5h2m". Smaller parts are cut off, and nothing is
// rounded:
// - Below ten seconds, the smallest part is a tenth of a second.
// - Below an hour, the smallest part is a second.
// - From an hour on, the smallest part is a minute.
//
// A negative duration gives "0s".
std::string DurationText(absl::Duration duration);

// Returns text such as "2026-01-02 03:04:05 UTC".
std::string UtcText(absl::Time time);

}  // namespace lodestar
