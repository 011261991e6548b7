// SPDX-License-Identifier: Apache-2.0

// RunningTime is the time of a clock without the gaps in which this process did not run. For
// example, the process was stopped, or its machine was suspended. In a gap, messages of peers wait
// unread. So time in a gap must not count as silence of a peer, or against a lease. The class does
// no I/O and has no lock.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace lodestar::rpc {

class RunningTime {
 public:
  // Maximum time between two calls of Advance() while the process runs. A longer time between them
  // is a gap.
  static constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

  // Sets the clock's time, which never goes back, to `clock_now`. Returns the length of the gap
  // that ends now. Zero means that there was no gap.
  absl::Duration Advance(absl::Time clock_now) {
    const absl::Duration pause =
        clock_now_.has_value() ? clock_now - *clock_now_ : absl::ZeroDuration();
    clock_now_ = clock_now;
    if (pause <= kLongestPause) return absl::ZeroDuration();
    gaps_ += pause;
    return pause;
  }

  // Both methods may be called only after the first Advance().
  absl::Time now() const { return *clock_now_ - gaps_; }
  absl::Time clock_now() const { return *clock_now_; }

 private:
  std::optional<absl::Time> clock_now_;
  absl::Duration gaps_;  // sum of all gaps
};

}  // namespace lodestar::rpc
