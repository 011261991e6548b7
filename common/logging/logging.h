// The process's log: one line per event on stderr, with local time, its zone and the level, or as
// an object of JSON. The only user of spdlog. Formats are those of fmt and checked at compile time:
// LogInfo("round={} shard={}", round, shard). Lines that repeat are counted instead of written: see
// RepeatFilter.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/logging/log_level.h"
#include "common/logging/log_tail.h"
#include "common/runtime/ids.h"

namespace lodestar {

// kText: "2026-11-26 16:00:00.000+00:00 info ps_server: worker joined name=a worker=1". kJson:
// {"time": "2026-11-26T16:00:00.000Z", "level": "info", "process": "ps_server", "message": "worker
// joined name=a worker=1", "name": "a", "worker": 1}: what the message says of IDs is there as
// fields, too, under the same keys and of the same types in every process: see LogFields().
enum class LogFormat : uint8_t { kText, kJson };

// text or json. Errors: InvalidArgument naming --log_format.
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view name);

// Every later line shows `process_name`, and those below `level` are dropped. Called once by
// main(); without it the level is kInfo, the format kText, and lines carry no name. Colours only on
// a terminal.
void InitLogging(absl::string_view process_name, LogLevel level,
                 LogFormat format = LogFormat::kText);

// From now on `tail`, which outlives all that logs, gets what is written, too; null: none does.
void KeepLog(LogTail* tail);

// Lines as kText and kJson have them, without their ends; text in the time of this machine's zone.
std::string LogText(LogLevel level, absl::string_view process_name, absl::string_view message,
                    absl::Time now);
std::string LogJson(LogLevel level, absl::string_view process_name, absl::string_view message,
                    absl::Time now);

bool IsLogged(LogLevel level);
// Thread-safe, as are the functions below.
void LogLine(LogLevel level, absl::string_view line);
// Writes what was counted of lines that repeated. For the end of the process.
void FlushLog();

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  if (IsLogged(LogLevel::kDebug)) {
    LogLine(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
  }
}

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  if (IsLogged(LogLevel::kInfo)) {
    LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
}

template <typename... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  if (IsLogged(LogLevel::kWarn)) {
    LogLine(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
  }
}

template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

// Collapses lines that repeat: they are counted, and the count is written now and then instead. A
// repeat equals the line written last, or has been written kFreeRepeats times within its window: so
// a state that comes back is told again, but a loop that fails every second is not. Pure: the time
// is given. Not thread-safe.
class RepeatFilter {
 public:
  struct Line {
    LogLevel level = LogLevel::kInfo;
    std::string text;
    friend bool operator==(const Line&, const Line&) = default;
  };

  // A count is written after this time at first, then each time after twice as long.
  static constexpr absl::Duration kFirstWindow = absl::Seconds(10);
  static constexpr absl::Duration kLongestWindow = absl::Minutes(10);
  static constexpr int kFreeRepeats = 3;
  // Lines that are remembered; beyond, the one not written for longest is forgotten.
  static constexpr size_t kMaxLines = 64;

  // What is to be written now, in order: counts of lines that have ceased, then this line, with
  // its count if it has one, unless it is a repeat.
  std::vector<Line> Admit(LogLevel level, absl::string_view text, absl::Time now);
  // All counts not written yet.
  std::vector<Line> Flush(absl::Time now);

 private:
  struct Entry {
    Line line;
    absl::Time window_begin;
    absl::Duration window = kFirstWindow;
    int written = 0;    // in this window
    int64_t count = 0;  // in this window, instead of being written
  };

  static Line Counted(const Entry& entry, absl::Time now);
  // Writes the count of an entry that goes.
  static void Close(const Entry& entry, absl::Time now, std::vector<Line>& lines);

  std::list<Entry> entries_;  // the one written last is last
};

// Logs a state when it changes, so that a condition that lasts costs two lines, not one per check.
// Thread-safe.
class ChangeLogger {
 public:
  using Sink = std::function<void(LogLevel, absl::string_view)>;

  explicit ChangeLogger(Sink sink = LogLine) : sink_(std::move(sink)) {}

  // Logs `state` unless it equals the last one given for `subject`. Returns whether it logged.
  bool Log(LogLevel level, absl::string_view subject, absl::string_view state)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets `subject`: its next state is logged whatever it is.
  void Forget(absl::string_view subject) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Sink sink_;
  absl::Mutex mutex_;
  std::map<std::string, std::string> states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar

template <>
struct fmt::formatter<absl::string_view> : fmt::formatter<fmt::string_view> {
  template <typename Context>
  auto format(absl::string_view text, Context& context) const {
    return fmt::formatter<fmt::string_view>::format({text.data(), text.size()}, context);
  }
};

template <>
struct fmt::formatter<absl::Status> : fmt::formatter<fmt::string_view> {
  template <typename Context>
  auto format(const absl::Status& status, Context& context) const {
    return fmt::formatter<fmt::string_view>::format(status.ToString(), context);
  }
};

template <typename Tag, typename Rep>
struct fmt::formatter<lodestar::StrongInt<Tag, Rep>> : fmt::formatter<Rep> {
  template <typename Context>
  auto format(lodestar::StrongInt<Tag, Rep> id, Context& context) const {
    return fmt::formatter<Rep>::format(id.value(), context);
  }
};
