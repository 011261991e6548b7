// How long a round waits for one of its members, whatever the member's heartbeats say. A process
// that has hung, or lies, may go on saying that it computes. Only how long it has taken before
// tells it from one that is slow. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"

namespace lodestar {

// How long a worker has taken of late from a grant to its report, as the coordinator has measured
// it. Rounds with an evaluation are compared with such rounds only: they may take hours where
// others take a second.
class MemberPace {
 public:
  void OnRound(const Grant& grant, absl::Duration took);
  // Returns the usual time for the samples of this grant. Not set before the first report of a
  // grant of its kind.
  std::optional<absl::Duration> UsualFor(const Grant& grant) const;
  // Returns the time of a round of `num_samples` of training without an evaluation: by the shorter
  // of the last two rounds, so that a single slow one is not expected again.
  std::optional<absl::Duration> LatelyFor(int64_t num_samples) const;

 private:
  enum Kind : uint8_t { kTraining, kTrainingAndEvaluation, kEvaluation, kNumKinds };
  struct Usual {
    absl::Duration took;      // the longest of the last few: each round halves it
    int64_t num_samples = 0;  // Samples of that round. 0 means that there is none yet.
  };
  static Kind KindOf(const Grant& grant);

  std::array<Usual, kNumKinds> usual_;
  // Time per sample of the last two rounds of training. Infinite means not known.
  absl::Duration newest_per_sample_ = absl::InfiniteDuration();
  absl::Duration last_per_sample_ = absl::InfiniteDuration();
};

class RoundPatience {
 public:
  // The most that a worker that has not reported yet is waited for while nothing of its transfers
  // moves. For a chunk of 64 KiB that is 0.1 kB/s: no path that is worth training over is as slow.
  static constexpr absl::Duration kForNewPath = absl::Minutes(10);

  // `timeout` bounds every answer: --round_timeout.
  RoundPatience(absl::Duration lease, absl::Duration timeout) : lease_(lease), timeout_(timeout) {}

  // Returns the time from when a member was given its work until it must have reported it.
  // `times_dropped` is how often in a row it was dropped for not having done so. Each time it gets
  // four times as long, so that a worker that is slow and not stuck gets in in the end.
  // `usual_round` is the cluster's usual time of late. 0 means not known.
  //
  // A worker whose pace is known has ten times its usual time, and never less than ten minutes: it
  // may have been suspended, swapped out, throttled or compiling. One whose pace is not known has a
  // hundred times the usual round of the others, at least a quarter of an hour. Both have two
  // leases more. A cluster that does not know any round yet has nothing to go by but
  // --round_timeout.
  absl::Duration ForWork(std::optional<absl::Duration> usual, absl::Duration usual_round,
                         int times_dropped) const;
  // As ForWork(), but a transfer that goes on is no reason to be dropped before `timeout`. `moved`
  // is the time from when the member was given its work until bytes of it moved the last time.
  absl::Duration ForTransfer(absl::Duration for_work, absl::Duration moved) const;
  // From when a server has heard of a push first until it must be whole, or more of it have come
  // than `received_bytes`: what others wait for comes at a pace at which it is whole before
  // `timeout`. A trickle is none, however long it goes on. What has come counts message by message,
  // each of which may take a minute: that much time a push has beside its pace.
  absl::Duration ForPush(int64_t received_bytes, int64_t total_bytes) const;
  // From when a server reads a push and nothing comes of it until the push is abandoned.
  absl::Duration ForSilence() const { return lease_; }
  // From when others began to wait for space that a member has until it must have pushed all.
  absl::Duration ForSpace() const { return timeout_; }
  // From when a worker's transfers stopped to move until the worker is dropped. A worker that has
  // not reported in this incarnation has four times as long, and again so after each drop: a path
  // that works gets in in the end. One that does not has not cost the others much by then.
  absl::Duration ForPath(absl::Duration usual_round, bool has_reported, int times_dropped) const;
  // From when a member could ask for work until it must have.
  absl::Duration ForAsking(int times_dropped) const;

 private:
  absl::Duration Longer(absl::Duration patience, int times_dropped) const;

  absl::Duration lease_;
  absl::Duration timeout_;
};

}  // namespace lodestar
