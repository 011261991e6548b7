#include "common/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace lodestar {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Never destroyed: threads that outlive main() may still log.
std::shared_ptr<spdlog::logger>& Logger() {
  static auto* const logger = new std::shared_ptr<spdlog::logger>([] {
    // In automatic mode the sink colours only if stderr is a terminal.
    auto sink =
        std::make_shared<spdlog::sinks::stderr_color_sink_mt>(spdlog::color_mode::automatic);
    auto created = std::make_shared<spdlog::logger>("", std::move(sink));
    created->set_pattern("%Y-%m-%d %H:%M:%S.%e%z %^%l%$ %v");
    created->flush_on(spdlog::level::debug);
    return created;
  }());
  return *logger;
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warn") return LogLevel::kWarn;
  if (name == "error") return LogLevel::kError;
  return absl::InvalidArgumentError(
      absl::StrCat("--log_level=", name, " is unknown; allowed: debug, info, warn, error"));
}

void InitLogging(absl::string_view process_name, LogLevel level) {
  Logger()->set_level(ToSpdlog(level));
  std::string escaped;
  for (char c : process_name) escaped.append(c == '%' ? 2 : 1, c);
  Logger()->set_pattern(absl::StrCat("%Y-%m-%d %H:%M:%S.%e%z %^%l%$ ", escaped, ": %v"));
}

bool IsLogged(LogLevel level) { return Logger()->should_log(ToSpdlog(level)); }

void LogLine(LogLevel level, absl::string_view line) {
  Logger()->log(ToSpdlog(level), fmt::string_view(line.data(), line.size()));
}

bool ChangeLogger::Log(LogLevel level, absl::string_view subject, absl::string_view state) {
  {
    absl::MutexLock lock(&mutex_);
    const auto [entry, is_new] = states_.try_emplace(std::string(subject), state);
    if (!is_new && entry->second == state) return false;
    entry->second = std::string(state);
  }
  sink_(level, state);
  return true;
}

void ChangeLogger::Forget(absl::string_view subject) {
  absl::MutexLock lock(&mutex_);
  states_.erase(std::string(subject));
}

}  // namespace lodestar
