// SPDX-License-Identifier: Apache-2.0

// Measures how long answers on one connection take, and says how long to wait for the next answer.
// Follows RFC 6298, as TCP does: a smoothed round-trip time and its variation. Comments such as
// (2.2) name sections of RFC 6298. Pure. Not thread-safe.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace lodestar::net {

class RoundTripTime {
 public:
  // Notes an answer that took `took`. (2.2, 2.3)
  void OnAnswered(absl::Duration took) {
    num_unanswered_ = 0;
    longest_ = absl::ZeroDuration();
    if (smoothed_ == absl::ZeroDuration()) {
      smoothed_ = took;
      variation_ = took / 2;
      return;
    }
    variation_ = 0.75 * variation_ + 0.25 * absl::AbsDuration(smoothed_ - took);
    smoothed_ = 0.875 * smoothed_ + 0.125 * took;
  }

  // Notes that no answer came within `waited`. One or two missing answers change nothing. After
  // kUnansweredInARow of them in a row, `waited` may have been too short, so the next waiting time
  // is doubled. (5.5)
  void OnUnanswered(absl::Duration waited) {
    if (++num_unanswered_ >= kUnansweredInARow) longest_ = 2 * waited;
  }

  // Returns how long to wait for an answer. The result is at least `least` and at most `most`.
  absl::Duration Patience(absl::Duration least, absl::Duration most) const {
    return std::clamp(std::max(smoothed_ + 4 * variation_, longest_), least, most);
  }

 private:
  static constexpr int kUnansweredInARow = 3;

  absl::Duration smoothed_;  // zero means that nothing was measured
  absl::Duration variation_;
  absl::Duration longest_;  // zero means that the last call was answered in time
  int num_unanswered_ = 0;
};

}  // namespace lodestar::net
