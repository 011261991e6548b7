// Lines to a descriptor whose reader may have stopped: a pipe into a pager, a log driver that
// hangs, a terminal after Ctrl-S. A line that cannot be written soon is dropped and counted, so
// that no thread waits for the reader.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lodestar {

class LineOutput {
 public:
  // How long a line waits for a reader that has kept up so far.
  static constexpr absl::Duration kPatience = absl::Milliseconds(200);

  // Does not own `descriptor`, which may be of others, too.
  explicit LineOutput(int descriptor) : descriptor_(descriptor) {}

  // `line` with its end. Thread-safe. If lines were dropped, the next that is written comes behind
  // one that says how many.
  void Write(absl::string_view line) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Returns whether all was written; else maybe a part.
  bool WriteWhole(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int descriptor_;
  absl::Mutex mutex_;
  uint64_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_cut_ ABSL_GUARDED_BY(mutex_) = false;  // a part of the last line was written
};

}  // namespace lodestar
