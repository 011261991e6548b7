// SPDX-License-Identifier: Apache-2.0

// Decides what `psctl export` prints about its progress. It reads no clock: the time is an
// argument. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lodestar::psctl {

class ExportProgress {
 public:
  // Interval between messages about how much has arrived.
  static constexpr absl::Duration kInterval = absl::Seconds(10);
  // If no bytes arrive for this long, the message says that the export waits.
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  explicit ExportProgress(absl::Time now) : told_at_(now), came_at_(now) {}

  // Returns the message for the operator that is due now. Empty means that there is nothing new.
  // `num_bytes` of `announced_bytes` (0 means not known yet) have come from `server`. `waiting_for`
  // is a sentence about what the job waits for, or empty.
  std::string Look(int64_t num_bytes, int64_t announced_bytes, absl::string_view server,
                   absl::string_view waiting_for, absl::Time now);

 private:
  absl::Time told_at_;
  absl::Time came_at_;  // when the last bytes came
  int64_t num_bytes_ = 0;
  bool is_wait_told_ = false;
};

}  // namespace lodestar::psctl
