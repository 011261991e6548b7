// LogTail keeps the last lines that a process has logged in memory, for those who ask for them
// later. It is bounded: the oldest lines go first.
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

namespace lodestar {

struct LogLineRecord {
  uint64_t number = 0;  // counts from 1, without gaps
  absl::Time time;
  LogLevel level = LogLevel::kInfo;
  std::string text;
  friend bool operator==(const LogLineRecord&, const LogLineRecord&) = default;
};

// Which lines are asked for: those that fit all of it.
struct LogQuery {
  uint64_t after = 0;  // of higher numbers
  LogLevel least_level = LogLevel::kDebug;
  // Lines with name=WORKER or worker=WORKER among their fields, see LogFields(), or with that word.
  std::string worker = {};
  // Lines with worker=ID among their fields count, too: what the cluster calls that worker.
  std::string worker_id = {};
  std::optional<int64_t> round = {};
  size_t most_lines = 1000;  // the newest, unless `oldest_first`
  size_t most_bytes = 1 << 20;
  // Beyond those bounds the newest are left for another query, not the oldest left out.
  bool oldest_first = false;
};

struct LogExcerpt {
  std::vector<LogLineRecord> lines;  // the newest last
  uint64_t last_number = 0;          // all lines until this one were looked at
  uint64_t num_gone = 0;             // lines behind `after` that are not kept any more
  bool has_more = false;             // with oldest_first: behind last_number
};

// Pure.
bool FitsQuery(const LogLineRecord& line, const LogQuery& query);

// Thread-safe.
class LogTail {
 public:
  static constexpr size_t kMaxLines = 4096;
  static constexpr size_t kMaxBytes = 1 << 20;   // of text
  static constexpr size_t kMaxLineBytes = 4096;  // longer ones are cut

  // `id`: random, tells this log from that of another life of the process. `process`: what its
  // lines call it.
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
  std::deque<LogLineRecord> lines_ ABSL_GUARDED_BY(mutex_);  // the newest last
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lodestar
