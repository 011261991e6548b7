// HeartbeatPace: when the heartbeats of one life are sent, how long their answers are waited for,
// and when it is the connection that is in doubt. A lease is three intervals; a heartbeat that is
// lost uses up one of them, and the next follows at once. Pure: the time is given.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "common/net/round_trip_time.h"

namespace lodestar::life {

class HeartbeatPace {
 public:
  HeartbeatPace(absl::Duration interval, absl::Time now) : interval_(interval), answered_at_(now) {}

  // How long the answer to a heartbeat that is sent now is waited for: an interval, and longer
  // where answers take longer, but no longer than a lease.
  absl::Duration patience() const { return path_.Patience(interval_, 3 * interval_); }
  void OnSent(absl::Time now) { sent_at_ = now; }
  void OnAnswered(absl::Time now) {
    answered_at_ = now;
    path_.OnAnswered(now - sent_at_);
  }
  // No answer came in time. Whether the next heartbeat needs a connection of its own: this one has
  // been silent, not refused, for longer than a busy server is.
  bool OnSilence(absl::Time now) {
    const absl::Duration waited = patience();
    path_.OnUnanswered(waited);
    if (now - answered_at_ < std::max(waited, kShortestSilence)) return false;
    answered_at_ = now;  // for the new connection
    return true;
  }
  // When to send the next one, or at once if that has been.
  absl::Time next() const { return sent_at_ + interval_; }

 private:
  static constexpr absl::Duration kShortestSilence = absl::Seconds(1);

  const absl::Duration interval_;
  RoundTripTime path_;
  absl::Time sent_at_ = absl::InfinitePast();
  absl::Time answered_at_;  // by the connection of now; or its beginning
};

}  // namespace lodestar::life
