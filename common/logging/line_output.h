// SPDX-License-Identifier: Apache-2.0

// Writes lines to a descriptor whose reader may have stopped: a pipe into a pager, a log driver
// that hangs, a terminal after Ctrl-S. A line that cannot be written soon is dropped and counted,
// so that no thread waits long for the reader.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lodestar::logging {

class LineOutput {
 public:
  // Maximum time that a line waits for the reader. After a line was dropped, later lines do not
  // wait until the reader reads again.
  static constexpr absl::Duration kPatience = absl::Milliseconds(200);

  // Does not own `descriptor`, which other code may use also.
  explicit LineOutput(int descriptor) : descriptor_(descriptor) {}

  // Writes `line`, which ends in a newline. Thread-safe. If lines were dropped, a line with their
  // number is written before the next line.
  void Write(absl::string_view line) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Returns true if all of `text` was written. Otherwise a part may have been written.
  bool WriteWhole(absl::string_view text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int descriptor_;
  absl::Mutex mutex_;
  uint64_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_cut_ ABSL_GUARDED_BY(mutex_) = false;  // true: only a part of the last line was written
};

}  // namespace lodestar::logging
