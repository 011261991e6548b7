// RunningTime is the time of a clock without the gaps in which this process did not run, because
// the process was stopped or starved, or its machine was stopped. What others sent in such a gap is
// read only after it. So a peer was not silent because nothing was heard of it in the gap, and no
// lease or patience may count the gap. The class is pure.
#pragma once

#include <optional>

#include "absl/time/time.h"

namespace lodestar::rpc {

class RunningTime {
 public:
  // A process that runs asks for the time more often than that.
  static constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

  // The clock, which never goes back, shows `clock_now`. Returns how long the gap was that ends
  // with it. Zero means that there was no gap.
  absl::Duration Advance(absl::Time clock_now) {
    const absl::Duration pause =
        clock_now_.has_value() ? clock_now - *clock_now_ : absl::ZeroDuration();
    clock_now_ = clock_now;
    if (pause <= kLongestPause) return absl::ZeroDuration();
    gaps_ += pause;
    return pause;
  }

  // Both may be called after the first Advance().
  absl::Time now() const { return *clock_now_ - gaps_; }
  absl::Time clock_now() const { return *clock_now_; }

 private:
  std::optional<absl::Time> clock_now_;
  absl::Duration gaps_;  // all of them together
};

}  // namespace lodestar::rpc
