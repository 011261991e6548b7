// SPDX-License-Identifier: Apache-2.0

// TraceRecorder writes what one process did during a few rounds into a file for ui.perfetto.dev and
// chrome://tracing. If the pointer to it is null, there is no trace, and a TraceSpan costs one
// comparison.
//
//   TraceSpan span(trace, "training", "read data");
//
// The picture has one lane per role of threads, not per thread. If several threads of a role work
// at the same time, their lane gets several rows.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/runtime/clock.h"

namespace lodestar::process {

// Checks that --trace may name `path`: nothing is there, or an empty file, or an older trace. An
// empty path is allowed. Errors: InvalidArgument (another file is there, such as training data);
// those of CheckOutput(). All errors name the flag and the path.
absl::Status CheckTraceOutput(const std::string& path);

// Says what a span is about. A value of -1 is not known, except in `round`.
struct TraceTag {
  int64_t round = -1;  // -1 means the round that the process is in
  int64_t block = -1;
  int64_t bucket = -1;
  int64_t bytes = -1;
};

// Records spans of one process. Thread-safe. Names and lanes must be literals, or live as long as
// the recorder.
class TraceRecorder {
 public:
  struct Options {
    std::string path;
    std::string process;      // name of the process in the picture
    int64_t skip_rounds = 2;  // the first rounds are slower, because memory is new
    int64_t num_rounds = 5;
  };

  // `clock` must outlive the recorder. The recorder notes the version of the file at the path, so
  // that Finish() can see if another process has written it.
  TraceRecorder(Options options, Clock* clock);
  ~TraceRecorder() { Finish(); }

  // Tells the recorder that the next round begins. The recording starts with the first round that
  // is not skipped. When the last wanted round is over, the recording ends and the file is written.
  void BeginRound(int64_t round) ABSL_LOCKS_EXCLUDED(mutex_);
  bool is_recording() const { return is_recording_.load(std::memory_order_relaxed); }
  absl::Time Now() { return clock_->Now(); }
  // Adds a span. Does nothing if the recorder is not recording.
  void Add(absl::string_view lane, absl::string_view name, absl::Time begin, absl::Time end,
           const TraceTag& tag = {}) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the recording and writes the file. Does nothing if the file has been written already, or
  // if no round was recorded. A failure is only logged, because it must not stop the training. If
  // another process has written a file at the path since this recorder was made, that file stays,
  // and this trace gets the next free name: PATH.2, PATH.3 and so on.
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Span {
    absl::string_view lane;
    absl::string_view name;
    absl::Time begin;
    absl::Time end;
    TraceTag tag;
  };
  // The row of each span, in the order of `spans`, and the name of each row.
  struct Rows {
    std::vector<int> row_of_span;
    std::vector<std::string> names;
  };
  // `spans` must be sorted by their begin. If two spans begin together, the longer span must come
  // first.
  static Rows AssignRows(const std::vector<Span>& spans);
  std::string ToJson(std::vector<Span> spans, int64_t num_dropped) const;
  // Writes the file and returns its path.
  absl::StatusOr<std::string> Write(const std::string& json) const;

  const Options options_;
  const std::string version_before_;  // version of the earlier file at the path; see VersionOf()
  Clock* const clock_;
  std::atomic<bool> is_recording_{false};
  absl::Mutex mutex_;
  int64_t rounds_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t round_ ABSL_GUARDED_BY(mutex_) = -1;
  std::vector<Span> spans_ ABSL_GUARDED_BY(mutex_);
  int64_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Records a span that lasts from the construction to the destruction of this object, on one thread.
class TraceSpan {
 public:
  TraceSpan(TraceRecorder* trace, absl::string_view lane, absl::string_view name,
            const TraceTag& tag = {})
      : trace_(trace != nullptr && trace->is_recording() ? trace : nullptr) {
    if (trace_ == nullptr) return;
    lane_ = lane;
    name_ = name;
    tag_ = tag;
    begin_ = trace_->Now();
  }
  ~TraceSpan() {
    if (trace_ != nullptr) trace_->Add(lane_, name_, begin_, trace_->Now(), tag_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  TraceRecorder* const trace_;
  absl::string_view lane_;
  absl::string_view name_;
  TraceTag tag_;
  absl::Time begin_;
};

}  // namespace lodestar::process
