// SPDX-License-Identifier: Apache-2.0

// Says how long a round waits for one of its members, whatever the member's heartbeats say. A
// process that hangs or lies may keep reporting that it computes. Only the time that it needed for
// earlier rounds distinguishes it from a slow process. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::stragglers {

// Times that a worker recently needed from a grant to its report, as the coordinator has measured
// them. Rounds with an evaluation may take hours and other rounds a second, so each kind of round
// has its own times.
class MemberPace {
 public:
  void OnRound(const messages::Grant& grant, absl::Duration took);
  // Returns the usual time for the samples of this grant. Not set means that no grant of its kind
  // was reported yet.
  std::optional<absl::Duration> UsualFor(const messages::Grant& grant) const;
  // Returns the expected time of a round that trains on `num_samples` without an evaluation. Uses
  // the faster of the last two rounds, so that one slow round does not count. Not set means not
  // known.
  std::optional<absl::Duration> LatelyFor(int64_t num_samples) const;

 private:
  enum Kind : uint8_t { kTraining, kTrainingAndEvaluation, kEvaluation, kNumKinds };
  struct Usual {
    absl::Duration took;      // longest time of recent rounds; halves with each round
    int64_t num_samples = 0;  // samples of that round; 0 means that there is none yet
  };
  static Kind KindOf(const messages::Grant& grant);

  std::array<Usual, kNumKinds> usual_;
  // Time per sample of the last two rounds of training. Infinite means not known.
  absl::Duration newest_per_sample_ = absl::InfiniteDuration();
  absl::Duration last_per_sample_ = absl::InfiniteDuration();
};

class RoundPatience {
 public:
  // Maximum time without a moving byte for a worker that has not reported yet. A chunk of 64 KiB in
  // that time is 0.1 kB/s, and no path worth training over is as slow.
  static constexpr absl::Duration kForNewPath = absl::Minutes(10);

  // `timeout` is --round_timeout, the maximum of every result.
  RoundPatience(absl::Duration lease, absl::Duration timeout) : lease_(lease), timeout_(timeout) {}

  // Returns the time from when a member was given work until it must have reported. `times_dropped`
  // is the number of times in a row that it was dropped because it was late. Each drop makes the
  // time four times as long, so that a slow worker that is not stuck succeeds in the end.
  // `usual_round` is the recent time of the cluster's rounds. 0 means not known.
  //
  // A worker with a known usual time `usual` has ten times that time, at least ten minutes: it may
  // have been suspended, swapped out, throttled or compiling. Any other worker has a hundred times
  // `usual_round`, at least 15 minutes. Both have two leases in addition. If `usual_round` is not
  // known either, the result is --round_timeout.
  absl::Duration ForWork(std::optional<absl::Duration> usual, absl::Duration usual_round,
                         int times_dropped) const;
  // Returns `for_work`, or the time until two leases after `moved` if that is later, but at most
  // `timeout`. So a member whose transfers go on is not dropped before `timeout`. `moved` is the
  // time from when the member was given its work until its transfers last moved a byte.
  absl::Duration ForTransfer(absl::Duration for_work, absl::Duration moved) const;
  // Returns the time from a server's first report of a push until the push must be whole, or more
  // than `received_bytes` of it must have come. A push must come at least so fast that it is whole
  // after `timeout`. A slower trickle is not enough. Received bytes are counted in whole messages,
  // each of which may take a minute. Therefore the result includes a minute more.
  absl::Duration ForPush(int64_t received_bytes, int64_t total_bytes) const;
  // Returns how long a server may read a push without receiving a byte. After this time the push
  // counts as abandoned.
  absl::Duration ForSilence() const { return lease_; }
  // Returns the time from when others began to wait for a member's space until the member must have
  // pushed everything.
  absl::Duration ForSpace() const { return timeout_; }
  // Returns the time from when a worker's transfers stopped until the worker is dropped. A worker
  // that has not reported in this incarnation has four times as long, and four times more after
  // each drop, at most kForNewPath. So a slow path that works succeeds in the end, and a path that
  // does not work costs the others little.
  absl::Duration ForPath(absl::Duration usual_round, bool has_reported, int times_dropped) const;
  // Returns the time from when a member could ask for work until it must have asked.
  absl::Duration ForAsking(int times_dropped) const;

 private:
  absl::Duration Longer(absl::Duration patience, int times_dropped) const;

  absl::Duration lease_;
  absl::Duration timeout_;
};

}  // namespace lodestar::stragglers
