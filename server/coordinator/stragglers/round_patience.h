// SPDX-License-Identifier: Apache-2.0

// Says how long a round waits for one of its members. The member's heartbeats do not matter,
// because a process that hangs may still report that it computes. Only the times that the member
// needed for earlier rounds matter. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"

namespace lodestar::stragglers {

// Holds the times that a worker recently needed from a grant to its report, as measured by the
// coordinator. It has times of its own for each Kind of round, because a round with an evaluation
// may take hours and another round a second.
class MemberPace {
 public:
  void OnRound(const messages::Grant& grant, absl::Duration took);
  // Returns the time that the worker usually needs for as many samples as `grant` has. Not set
  // means that the worker has not reported a grant of this Kind yet.
  std::optional<absl::Duration> UsualFor(const messages::Grant& grant) const;
  // Returns the expected time of a round that trains on `num_samples` without an evaluation. The
  // speed is that of the faster of the last two rounds, so that one slow round has no effect. Not
  // set means not known.
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
  // Maximum time that a worker's path may move no byte before the worker's first report. A path
  // that moves one chunk of 64 KiB in that time has 0.1 kB/s and is too slow for training.
  static constexpr absl::Duration kForNewPath = absl::Minutes(10);

  // `timeout` is --round_timeout. It is the maximum of all results except ForSilence() and
  // ForPath().
  RoundPatience(absl::Duration lease, absl::Duration timeout) : lease_(lease), timeout_(timeout) {}

  // Returns the time that a member has from a grant to its report:
  // - If the usual time of this member is known: 10 * `usual`, at least 10 minutes, plus two
  //   leases.
  // - Otherwise, if `usual_round` is known: 100 * `usual_round`, at least 15 minutes, plus two
  //   leases.
  // - Otherwise: --round_timeout.
  //
  // `usual_round` is the recent time of the cluster's rounds. 0 means not known. `times_dropped` is
  // how often in a row the member was dropped because it was late. Each drop multiplies the first
  // two results by four, so that a slow worker succeeds in the end.
  absl::Duration ForWork(std::optional<absl::Duration> usual, absl::Duration usual_round,
                         int times_dropped) const;
  // Returns `for_work`, or `moved` plus two leases if that is longer, but at most `timeout`.
  // `moved` is the time from the member's grant until its transfers last moved a byte. So a member
  // whose transfers move is not dropped before `timeout`.
  absl::Duration ForTransfer(absl::Duration for_work, absl::Duration moved) const;
  // Returns how long a push may take to get beyond `received_bytes`, counted from the server's
  // first report of the push. A push must be fast enough to be whole after `timeout`. Bytes are
  // counted in whole messages, and a message may take a minute, so the result includes one more
  // minute.
  absl::Duration ForPush(int64_t received_bytes, int64_t total_bytes) const;
  // Returns how long a server may read a push without receiving a byte. The push is then abandoned.
  absl::Duration ForSilence() const { return lease_; }
  // Returns how long other members wait for the space that a member's pushes occupy at a server.
  // Within that time the member must have pushed everything.
  absl::Duration ForSpace() const { return timeout_; }
  // Returns how long a worker's transfers may stand still before the worker is dropped:
  // - If the worker has reported in this incarnation: one lease plus `usual_round`.
  // - Otherwise: four times as long, and four times longer again after each drop. These factors
  //   raise the result to at most kForNewPath.
  absl::Duration ForPath(absl::Duration usual_round, bool has_reported, int times_dropped) const;
  // Returns how long a member that has no work may take to ask for work.
  absl::Duration ForAsking(int times_dropped) const;

 private:
  absl::Duration Longer(absl::Duration patience, int times_dropped) const;

  absl::Duration lease_;
  absl::Duration timeout_;
};

}  // namespace lodestar::stragglers
