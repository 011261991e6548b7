// RedialPace: when a worker dials again whose connection was closed: at once, and then after pauses
// that grow while the connections that it gets do not last. Even the longest is well below the time
// after which a server may take the worker for lost. Pure: the time is given.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace lodestar::life {

class RedialPace {
 public:
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestPause = absl::Milliseconds(400);
  static constexpr absl::Duration kLasting = absl::Seconds(1);

  // A connection is held from now on.
  void OnHeld(absl::Time now) { held_at_ = now; }
  // The connection was closed, or could not be opened. Returns how long to wait.
  absl::Duration OnFailed(absl::Time now) {
    const bool has_lasted = now - held_at_ >= kLasting;
    held_at_ = absl::InfiniteFuture();
    if (has_lasted) next_ = absl::ZeroDuration();
    const absl::Duration pause = next_;
    next_ = next_ == absl::ZeroDuration() ? kFirstPause : std::min(2 * next_, kLongestPause);
    return pause;
  }

 private:
  absl::Time held_at_ = absl::InfiniteFuture();
  absl::Duration next_ = absl::ZeroDuration();
};

}  // namespace lodestar::life
