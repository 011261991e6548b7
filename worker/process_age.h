// SPDX-License-Identifier: Apache-2.0

// Measures how long this process has been running, including the time for loading its libraries.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::worker {

// Returns the age of this process, rounded to 10 ms. Zero means that the system does not report the
// age.
absl::Duration ProcessAge();

// Returns the age of the process whose /proc/PID/stat has the text `stat`. `since_boot` is the time
// since the machine was started. Returns zero if `stat` does not have the form of proc(5), or if it
// says that the process started after `since_boot`.
absl::Duration ProcessAgeFrom(absl::string_view stat, absl::Duration since_boot,
                              int64_t ticks_per_second);

}  // namespace lodestar::worker
