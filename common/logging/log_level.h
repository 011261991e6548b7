// SPDX-License-Identifier: Apache-2.0

// The importance of a log line.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar::logging {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };

// Returns the level that `name` means: debug, info, warning (or warn) or error. Errors:
// InvalidArgument naming `flag`.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view name,
                                       absl::string_view flag = "log_level");
// Returns "debug", "info", "warning" or "error", the names in log lines and flags.
absl::string_view LogLevelName(LogLevel level);

}  // namespace lodestar::logging
