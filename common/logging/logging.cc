// SPDX-License-Identifier: Apache-2.0

#include "common/logging/logging.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/details/os.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/logging/line_output.h"
#include "common/logging/log_fields.h"
#include "common/runtime/clock.h"
#include "common/runtime/join_secret.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"

namespace lodestar::logging {
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

// Writes to stderr, with colours for levels if it is a terminal. Threads do not wait long if the
// reader of stderr has stopped.
class StderrSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  StderrSink()
      : output_(STDERR_FILENO),
        has_colors_(spdlog::details::os::in_terminal(stderr) &&
                    spdlog::details::os::is_color_terminal()) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    message.color_range_start = message.color_range_end = 0;
    formatter_->format(message, line);
    const absl::string_view text(line.data(), line.size());
    if (!has_colors_ || message.color_range_end <= message.color_range_start) {
      return output_.Write(text);
    }
    output_.Write(absl::StrCat(
        text.substr(0, message.color_range_start), ColorOf(message.level),
        text.substr(message.color_range_start, message.color_range_end - message.color_range_start),
        "\033[m", text.substr(message.color_range_end)));
  }
  void flush_() override {}

  static absl::string_view ColorOf(spdlog::level::level_enum level) {
    switch (level) {
      case spdlog::level::debug:
        return "\033[36m";
      case spdlog::level::warn:
        return "\033[33m\033[1m";
      case spdlog::level::err:
        return "\033[31m\033[1m";
      default:
        return "\033[32m";
    }
  }

  LineOutput output_;
  const bool has_colors_;
};

struct LockedFilter {
  absl::Mutex mutex;  // also keeps the lines of one call of LogLine() together
  RepeatFilter filter ABSL_GUARDED_BY(mutex);
};

// Repeats() and the functions below keep objects that are never destroyed, because threads that
// outlive main() may still log.
LockedFilter& Repeats() {
  static auto* const repeats = new LockedFilter;
  return *repeats;
}

std::shared_ptr<spdlog::logger>& Logger() {
  static auto* const logger = new std::shared_ptr<spdlog::logger>([] {
    auto created = std::make_shared<spdlog::logger>("", std::make_shared<StderrSink>());
    created->set_pattern("%Y-%m-%d %H:%M:%S.%e%z %^%l%$ %v");
    return created;
  }());
  return *logger;
}

// Name of the process in JSON lines. nullopt means that lines are text.
std::optional<std::string>& JsonProcessName() {
  static auto* const name = new std::optional<std::string>;
  return *name;
}

// The tail that gets all lines, not owned. Null means that no lines are kept.
LogTail*& Tail() {
  static LogTail* tail = nullptr;
  return tail;
}

void Write(const std::vector<RepeatFilter::Line>& lines) {
  const std::optional<std::string>& process = JsonProcessName();
  for (const auto& [level, text] : lines) {
    if (Tail() != nullptr) Tail()->Add(level, text, Clock::Real().Now());
    Logger()->log(ToSpdlog(level),
                  process.has_value()
                      ? fmt::string_view(LogJson(level, *process, text, Clock::Real().Now()))
                      : fmt::string_view(text));
  }
}

}  // namespace

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view name) {
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  return absl::InvalidArgumentError(
      absl::StrCat("--log_format=", name, " is unknown; allowed: text, json"));
}

std::string LogJson(LogLevel level, absl::string_view process_name, absl::string_view message,
                    absl::Time now) {
  Json line = {{"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone())},
               {"level", std::string(LogLevelName(level))},
               {"process", std::string(process_name)},
               {"message", std::string(message)}};
  for (const auto& [key, value] : LogFields(message)) {
    if (uint64_t number = 0; IsNumberLogKey(key) && absl::SimpleAtoi(value, &number)) {
      line[key] = number;
    } else {
      line[key] = value;
    }
  }
  return FormatJson(line);
}

std::string LogText(LogLevel level, absl::string_view process_name, absl::string_view message,
                    absl::Time now) {
  return absl::StrCat(absl::FormatTime("%Y-%m-%d %H:%M:%E3S%Ez ", now, absl::LocalTimeZone()),
                      LogLevelName(level), " ", process_name, ": ", message);
}

void KeepLog(LogTail* tail) {
  absl::MutexLock lock(&Repeats().mutex);
  Tail() = tail;
}

void InitLogging(absl::string_view process_name, LogLevel level, LogFormat format) {
  absl::MutexLock lock(&Repeats().mutex);  // other threads may log already
  Logger()->set_level(ToSpdlog(level));
  JsonProcessName().reset();
  if (format == LogFormat::kJson) {
    JsonProcessName() = std::string(process_name);
    Logger()->set_pattern("%v");
    return;
  }
  std::string escaped;
  for (char c : process_name) escaped.append(c == '%' ? 2 : 1, c);
  Logger()->set_pattern(absl::StrCat("%Y-%m-%d %H:%M:%S.%e%z %^%l%$ ", escaped, ": %v"));
}

bool IsLogged(LogLevel level) { return Logger()->should_log(ToSpdlog(level)); }

// Hides join strings, which a quoted flag or file may contain by mistake. Replaces unsafe bytes,
// which a file name may contain.
void LogLine(LogLevel level, absl::string_view line) {
  if (!IsLogged(level)) return;
  LockedFilter& repeats = Repeats();
  absl::MutexLock lock(&repeats.mutex);
  Write(repeats.filter.Admit(level, PeerLines(WithoutJoinSecrets(line)), Clock::Real().Now()));
}

void FlushLog() {
  LockedFilter& repeats = Repeats();
  absl::MutexLock lock(&repeats.mutex);
  Write(repeats.filter.Flush(Clock::Real().Now()));
}

std::vector<RepeatFilter::Line> RepeatFilter::Admit(LogLevel level, absl::string_view text,
                                                    absl::Time now) {
  Line line = {level, std::string(text)};
  const auto is_over = [now](const Entry& entry) {
    return now - entry.window_begin >= entry.window;
  };
  std::vector<Line> lines;
  auto entry = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->line == line && (!is_over(*it) || it->count > 0)) {
      entry = it++;
    } else if (!is_over(*it)) {
      ++it;
    } else {
      Close(*it, now, lines);
      it = entries_.erase(it);
    }
  }
  if (entry == entries_.end()) {
    if (entries_.size() == kMaxLines) {
      Close(entries_.front(), now, lines);
      entries_.pop_front();
    }
    entry = entries_.insert(entry, {.line = line, .window_begin = now});
  } else if (is_over(*entry)) {
    line = Counted(*entry, now);
    const absl::Duration window = std::min(2 * entry->window, kLongestWindow);
    *entry = {.line = entry->line, .window_begin = now, .window = window};
  } else if (std::next(entry) == entries_.end() || entry->written >= kFreeRepeats) {
    ++entry->count;
    return lines;
  }
  lines.push_back(line);
  ++entry->written;
  entries_.splice(entries_.end(), entries_, entry);
  return lines;
}

std::vector<RepeatFilter::Line> RepeatFilter::Flush(absl::Time now) {
  std::vector<Line> lines;
  for (const Entry& entry : entries_) Close(entry, now, lines);
  entries_.clear();
  return lines;
}

RepeatFilter::Line RepeatFilter::Counted(const Entry& entry, absl::Time now) {
  return {entry.line.level,
          absl::StrCat(
              entry.line.text, " (", entry.count, " more of these in the last ",
              absl::FormatDuration(absl::Trunc(now - entry.window_begin, absl::Seconds(1))), ")")};
}

void RepeatFilter::Close(const Entry& entry, absl::Time now, std::vector<Line>& lines) {
  if (entry.count > 0) lines.push_back(Counted(entry, now));
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

}  // namespace lodestar::logging
