// Tells how long this process has been running, including the time for loading its libraries.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::worker {

// Returns the age of this process, to 10 ms, or zero if the system does not tell.
absl::Duration ProcessAge();

// Returns the age of a process whose /proc/PID/stat has the text `stat`. `since_boot` is the time
// since the machine was started. Returns zero if `stat` is not such a text, or if it says that the
// process started later than that.
absl::Duration ProcessAgeFrom(absl::string_view stat, absl::Duration since_boot,
                              int64_t ticks_per_second);

}  // namespace lodestar::worker
