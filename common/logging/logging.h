// SPDX-License-Identifier: Apache-2.0

// The log of the process: one line per event on stderr. A line is text with local time, time zone
// and level, or a JSON object. Only this file uses spdlog. Formats are fmt's and checked at compile
// time: LogInfo("round={} shard={}", round, shard). Repeated lines are counted and not written: see
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

namespace lodestar::logging {

// kText: "2026-11-26 16:00:00.000+00:00 info ps_server: worker joined name=a worker=1". kJson:
// {"time": "2026-11-26T16:00:00.000Z", "level": "info", "process": "ps_server", "message": "worker
// joined name=a worker=1", "name": "a", "worker": 1}. Ids in the message are also fields, with the
// same keys and types in every process: see LogFields().
enum class LogFormat : uint8_t { kText, kJson };

// Reads "text" or "json". Errors: InvalidArgument naming --log_format.
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view name);

// Sets up the log: every later line shows `process_name`, and lines below `level` are dropped.
// main() calls this once. Before the call the level is kInfo, the format is kText, and lines have
// no name. Colours are used only on a terminal.
void InitLogging(absl::string_view process_name, LogLevel level,
                 LogFormat format = LogFormat::kText);

// From now on, adds every logged line also to `tail`. `tail` must outlive all threads that log.
// Null means that no lines are kept.
void KeepLog(LogTail* tail);

// Return one line in the format kText or kJson, without its newline. kText uses the time zone of
// this machine.
std::string LogText(LogLevel level, absl::string_view process_name, absl::string_view message,
                    absl::Time now);
std::string LogJson(LogLevel level, absl::string_view process_name, absl::string_view message,
                    absl::Time now);

bool IsLogged(LogLevel level);
// Writes a line. Thread-safe, like the functions below.
void LogLine(LogLevel level, absl::string_view line);
// Writes the counts of repeated lines that are not written yet. Must be called before the process
// ends.
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

// Counts repeated lines, and from time to time writes the count in their place. So a loop that
// fails every second does not fill the log, but a message that comes back later is logged again.
// Within its window (see kFirstWindow), a line counts as a repeat in two cases:
//   It equals the line that was written last.
//   It was written kFreeRepeats times already.
// Pure: the time is passed in. Not thread-safe.
class RepeatFilter {
 public:
  struct Line {
    LogLevel level = LogLevel::kInfo;
    std::string text;
    friend bool operator==(const Line&, const Line&) = default;
  };

  // The first window of a line begins when the line is written. The next call after a window writes
  // the number of repeats in it, if there were any. If that call is for the same line, the line's
  // next window is twice as long, up to kLongestWindow.
  static constexpr absl::Duration kFirstWindow = absl::Seconds(10);
  static constexpr absl::Duration kLongestWindow = absl::Minutes(10);
  static constexpr int kFreeRepeats = 3;
  // Maximum number of lines that are remembered. Beyond that, the line that was written longest ago
  // is forgotten.
  static constexpr size_t kMaxLines = 64;

  // Returns the lines to write now, in order:
  //   the counts of other lines whose window has ended, or that are forgotten
  //   `text`, with its count if its window has ended, or nothing if it is a repeat
  std::vector<Line> Admit(LogLevel level, absl::string_view text, absl::Time now);
  // Returns all counts that are not written yet.
  std::vector<Line> Flush(absl::Time now);

 private:
  struct Entry {
    Line line;
    absl::Time window_begin;
    absl::Duration window = kFirstWindow;
    int written = 0;    // times written in this window
    int64_t count = 0;  // repeats in this window that were not written
  };

  static Line Counted(const Entry& entry, absl::Time now);
  // Appends the number of repeats of `entry`, which is then removed. Appends nothing if there were
  // none.
  static void Close(const Entry& entry, absl::Time now, std::vector<Line>& lines);

  std::list<Entry> entries_;  // ordered by the time of writing, latest last
};

// Logs a state only when it changes, so that a lasting condition costs two lines, not one per
// check. Thread-safe.
class ChangeLogger {
 public:
  using Sink = std::function<void(LogLevel, absl::string_view)>;

  explicit ChangeLogger(Sink sink = LogLine) : sink_(std::move(sink)) {}

  // Logs `state` unless it equals the last state of `subject`. Returns true if it logged.
  bool Log(LogLevel level, absl::string_view subject, absl::string_view state)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets `subject`, so that its next state is logged in any case.
  void Forget(absl::string_view subject) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Sink sink_;
  absl::Mutex mutex_;
  std::map<std::string, std::string> states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::logging

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
