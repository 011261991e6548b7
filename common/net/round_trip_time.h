// How long the answers on one connection take, and how long one may be waited for: RFC 6298, as TCP
// does, by a smoothed round trip and its variation. Pure. Not thread-safe.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace lodestar {

class RoundTripTime {
 public:
  // An answer came after so long. (2.2, 2.3)
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

  // None came within `waited`. One that is lost, and a connection that is dead, say nothing about
  // the path; several in a row may only have been waited for too shortly: then for twice as long.
  // (5.5)
  void OnUnanswered(absl::Duration waited) {
    if (++num_unanswered_ >= kUnansweredInARow) longest_ = 2 * waited;
  }

  // How long an answer is waited for: by what was measured, within these bounds.
  absl::Duration Patience(absl::Duration least, absl::Duration most) const {
    return std::clamp(std::max(smoothed_ + 4 * variation_, longest_), least, most);
  }

 private:
  static constexpr int kUnansweredInARow = 3;

  absl::Duration smoothed_;  // zero: nothing was measured
  absl::Duration variation_;
  absl::Duration longest_;  // zero: the last one was answered
  int num_unanswered_ = 0;
};

}  // namespace lodestar
