// SPDX-License-Identifier: Apache-2.0

// Checks that numbers which an operator gives are in range, with one form of error everywhere.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

// Checks that `value` is in the range. Errors of all functions here: InvalidArgument, "--flag=value
// is out of range; allowed are lowest to highest".
absl::Status CheckWholeRange(absl::string_view flag, int64_t value, int64_t lowest,
                             int64_t highest);
// Checks that `value` is in the range. NaN is refused.
absl::Status CheckRange(absl::string_view flag, double value, double lowest, double highest);
// Refuses a number that is not 0 as text, but too small for a double, which makes it 0. `value` was
// read from `text`. `name` is the setting's name in the error.
absl::Status CheckNotTooSmall(absl::string_view name, absl::string_view text, double value);
absl::Status CheckDurationRange(absl::string_view flag, absl::Duration value, absl::Duration lowest,
                                absl::Duration highest);

}  // namespace lodestar
