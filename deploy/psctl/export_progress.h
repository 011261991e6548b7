// What `psctl export` says while it lasts. Pure: the time is given. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar {

class ExportProgress {
 public:
  // How often it is told how far the export is.
  static constexpr absl::Duration kInterval = absl::Seconds(10);
  // An export of which nothing comes for that long is said to wait.
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  explicit ExportProgress(absl::Time now) : told_at_(now), came_at_(now) {}

  // `num_bytes` of `announced_bytes` (0 means not known yet) have come from `server`, whose
  // job waits for `waiting_for`, a sentence (empty means nothing). Returns what to tell the
  // operator now. Empty means nothing new.
  std::string Look(int64_t num_bytes, int64_t announced_bytes, absl::string_view server,
                   absl::string_view waiting_for, absl::Time now);

 private:
  absl::Time told_at_;
  absl::Time came_at_;  // when the last bytes had come
  int64_t num_bytes_ = 0;
  bool is_wait_told_ = false;
};

}  // namespace lodestar
