// Measures how long this process has been running, including the time for loading its libraries.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::worker {

// Returns the age of this process, rounded to 10 ms. Zero means that the system does not tell.
absl::Duration ProcessAge();

// Returns the age of the process whose /proc/PID/stat has the text `stat`. `since_boot` is the time
// since the machine was started. Returns zero if `stat` has another form, or says that the process
// started later than `since_boot`.
absl::Duration ProcessAgeFrom(absl::string_view stat, absl::Duration since_boot,
                              int64_t ticks_per_second);

}  // namespace lodestar::worker
