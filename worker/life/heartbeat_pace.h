// SPDX-License-Identifier: Apache-2.0

// HeartbeatPace decides when the heartbeats of one life are sent, how long the worker waits for
// each answer, and when it needs a new connection. A heartbeat is sent every interval. A lease is
// three intervals. The class reads no clock: the caller passes the time in.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "common/net/round_trip_time.h"

namespace lodestar::life {

class HeartbeatPace {
 public:
  HeartbeatPace(absl::Duration interval, absl::Time now) : interval_(interval), answered_at_(now) {}

  // Returns how long to wait for the answer to a heartbeat that is sent now: usually one interval.
  // If answers take longer, the wait is longer, but at most a lease.
  absl::Duration patience() const { return path_.Patience(interval_, 3 * interval_); }
  void OnSent(absl::Time now) { sent_at_ = now; }
  void OnAnswered(absl::Time now) {
    answered_at_ = now;
    path_.OnAnswered(now - sent_at_);
  }
  // Must be called when no answer came in time. Returns true if the connection has been silent for
  // longer than a busy server would be. The next heartbeat then needs a new connection.
  bool OnSilence(absl::Time now) {
    const absl::Duration waited = patience();
    path_.OnUnanswered(waited);
    if (now - answered_at_ < std::max(waited, kShortestSilence)) return false;
    // Gives the new connection as much time as the old connection had.
    answered_at_ = now;
    return true;
  }
  // Returns when to send the next heartbeat. A time in the past means at once.
  absl::Time next() const { return sent_at_ + interval_; }

 private:
  static constexpr absl::Duration kShortestSilence = absl::Seconds(1);

  const absl::Duration interval_;
  net::RoundTripTime path_;
  absl::Time sent_at_ = absl::InfinitePast();
  // Time of the last answer on the present connection. Before the first answer, the time when the
  // connection began.
  absl::Time answered_at_;
};

}  // namespace lodestar::life
