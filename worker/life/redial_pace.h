// SPDX-License-Identifier: Apache-2.0

// RedialPace decides when a worker connects again after its connection was closed. The first
// attempt is made at once. If new connections soon end again, the pauses between attempts grow. The
// longest pause is well below the time after which a server treats the worker as lost. The caller
// passes the time in.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace lodestar::life {

class RedialPace {
 public:
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
  static constexpr absl::Duration kLongestPause = absl::Milliseconds(400);
  static constexpr absl::Duration kLasting = absl::Seconds(1);

  // Must be called when the worker has a connection again.
  void OnHeld(absl::Time now) { held_at_ = now; }
  // Must be called when the connection was closed or could not be opened. Returns the pause before
  // the next attempt.
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
