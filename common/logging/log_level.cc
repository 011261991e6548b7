// SPDX-License-Identifier: Apache-2.0

#include "common/logging/log_level.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lodestar::logging {

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view name, absl::string_view flag) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning" || name == "warn") return LogLevel::kWarn;
  if (name == "error") return LogLevel::kError;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", name, " is unknown; allowed: debug, info, warning, error"));
}

absl::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "info";
}

}  // namespace lodestar::logging
