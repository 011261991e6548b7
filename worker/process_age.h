// How long this process has been running, loading of its libraries included.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

// To 10 ms. Zero if the system does not tell.
absl::Duration ProcessAge();

// Of a process with this text in /proc/PID/stat, so long after the machine was started. Zero if it
// is not such a text, or of a later start.
absl::Duration ProcessAgeFrom(absl::string_view stat, absl::Duration since_boot,
                              int64_t ticks_per_second);

}  // namespace lodestar
