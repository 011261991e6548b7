// How much a line of a log matters.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };

// debug, info, warning (or, shorter, warn) or error. Errors: InvalidArgument naming `flag`.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view name,
                                       absl::string_view flag = "log_level");
// "debug", "info", "warning", "error": as lines and flags have it.
absl::string_view LogLevelName(LogLevel level);

}  // namespace lodestar
