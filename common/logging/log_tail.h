// SPDX-License-Identifier: Apache-2.0

// LogTail keeps the last lines that a process has logged in memory, so that they can be asked for
// later. It is bounded: the oldest lines are dropped first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/logging/log_level.h"

namespace lodestar::logging {

struct LogLineRecord {
  uint64_t number = 0;  // number of the line, from 1 on, without gaps
  absl::Time time;
  LogLevel level = LogLevel::kInfo;
  std::string text;
  friend bool operator==(const LogLineRecord&, const LogLineRecord&) = default;
};

// Conditions for lines. A line must meet all of them.
struct LogQuery {
  uint64_t after = 0;  // only lines with a higher number
  LogLevel least_level = LogLevel::kDebug;
  // Only lines that have name=WORKER or worker=WORKER among their fields (see LogFields()), or that
  // contain WORKER as a whole word.
  std::string worker = {};
  // The worker's id in the cluster. Lines with worker=ID among their fields count also.
  std::string worker_id = {};
  std::optional<int64_t> round = {};
  size_t most_lines = 1000;  // the newest lines, or the oldest if `oldest_first`
  size_t most_bytes = 1 << 20;
  // If more lines than allowed meet the conditions: true returns the oldest of them, so that later
  // queries can get the rest. False returns the newest.
  bool oldest_first = false;
};

struct LogExcerpt {
  std::vector<LogLineRecord> lines;  // newest last
  uint64_t last_number = 0;          // number of the last line that was examined
  uint64_t num_gone = 0;             // number of lines after `after` that were dropped
  bool has_more = false;             // with oldest_first: there are more lines after last_number
};

// Returns true if `line` meets `query`. Pure.
bool FitsQuery(const LogLineRecord& line, const LogQuery& query);

// The last log lines. Thread-safe.
class LogTail {
 public:
  static constexpr size_t kMaxLines = 4096;
  static constexpr size_t kMaxBytes = 1 << 20;   // maximum bytes of text
  static constexpr size_t kMaxLineBytes = 4096;  // longer lines are cut

  // `id` is a random text. It shows a reader whether the process was restarted. `process` is the
  // name of the process in log lines.
  explicit LogTail(std::string id = "", std::string process = "")
      : id_(std::move(id)), process_(std::move(process)) {}
  const std::string& id() const { return id_; }
  const std::string& process() const { return process_; }

  void Add(LogLevel level, absl::string_view text, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  LogExcerpt Read(const LogQuery& query) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::string id_;
  const std::string process_;
  mutable absl::Mutex mutex_;
  std::deque<LogLineRecord> lines_ ABSL_GUARDED_BY(mutex_);  // newest last
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lodestar::logging
