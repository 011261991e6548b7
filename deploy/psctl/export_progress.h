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
  // Interval between messages about how many bytes have arrived.
  static constexpr absl::Duration kInterval = absl::Seconds(10);
  // If no bytes arrive for this long, a message says so.
  static constexpr absl::Duration kPatience = absl::Seconds(3);

  explicit ExportProgress(absl::Time now) : told_at_(now), came_at_(now) {}

  // Returns the next message for the operator. Empty means that no message is due at `now`.
  // `server` has sent `num_bytes` of `announced_bytes`. 0 `announced_bytes` means that the size is
  // not known yet. `waiting_for` says what the job waits for. Empty means that it waits for
  // nothing.
  std::string Look(int64_t num_bytes, int64_t announced_bytes, absl::string_view server,
                   absl::string_view waiting_for, absl::Time now);

 private:
  absl::Time told_at_;
  absl::Time came_at_;  // when the last bytes came
  int64_t num_bytes_ = 0;
  bool is_wait_told_ = false;
};

}  // namespace lodestar::psctl
