// Bounds of numbers that an operator gives, refused in one form everywhere.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

// Errors of all: InvalidArgument, "--flag=value is out of range; allowed are lowest to highest".
absl::Status CheckWholeRange(absl::string_view flag, int64_t value, int64_t lowest,
                             int64_t highest);
// Refuses NaN, too.
absl::Status CheckRange(absl::string_view flag, double value, double lowest, double highest);
// `text` is what `value` was read from. Refuses a number that is not 0 and that a double cannot
// hold: it would be read as 0 without a word. `name`: of the setting, as people write it.
absl::Status CheckNotTooSmall(absl::string_view name, absl::string_view text, double value);
absl::Status CheckDurationRange(absl::string_view flag, absl::Duration value, absl::Duration lowest,
                                absl::Duration highest);

}  // namespace lodestar
