// SPDX-License-Identifier: Apache-2.0

// Holds what a worker is doing, according to its heartbeats and to the servers' reports of its
// pushes. Also holds how long its rounds usually take, and how often it was dropped. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "server/coordinator/stragglers/member_pushes.h"
#include "server/coordinator/stragglers/rate_meter.h"
#include "server/coordinator/stragglers/round_patience.h"

namespace lodestar::stragglers {

class WorkerActivity {
 public:
  // Values that are saved and survive a restart of the coordinator.
  struct Memory {
    int times_dropped = 0;
    absl::Time rests_until = absl::InfinitePast();
    bool kept_space = false;  // true: other processes of this name must rest as well
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // A path on which no byte moves. It leads from the worker to a server for which the worker waits.
  struct PathStall {
    int shard = 0;
    absl::Time since;
  };

  WorkerActivity() = default;
  explicit WorkerActivity(const Memory& memory) : memory_(memory) {}
  const Memory& memory() const { return memory_; }

  void BeginLife(bool is_same_process);
  void EndLife();
  void OnHeartbeat(const messages::HeartbeatCall& call, absl::Time now);
  void OnGrant() { pushes_.OnGrant(); }
  // Records a report of the worker. `grant` is the grant that the report is about, if the worker
  // held one. `time` is how long the grant took.
  void OnReport(const std::optional<messages::Grant>& grant, absl::Duration time);

  // Returns what the worker does, by its last heartbeat. Empty means that this incarnation has sent
  // no heartbeat.
  const std::string& activity() const { return activity_; }
  // Returns true if the last heartbeat says that the worker pushes: the contribution is not
  // acknowledged yet.
  bool is_delivering() const { return activity_ == "push"; }
  bool is_pulling() const { return activity_ == "pull"; }
  // Returns true if the worker may be waiting for its turn in the summation. This is so if it
  // pushes, or if its client does not report an activity.
  bool may_wait_behind_others() const {
    return activity_ != "compute" && activity_ != "pull" && activity_ != "wait";
  }
  // Returns the time of the last heartbeat that showed a change: another activity, or more bytes
  // pushed or pulled.
  absl::Time same_since() const { return same_since_; }
  // Returns the time of the last heartbeat that reported more bytes pushed or pulled.
  absl::Time moved_at() const { return moved_at_; }
  // Returns what the servers have reported of the worker's pushes in this incarnation.
  MemberPushes& pushes() { return pushes_; }
  const MemberPushes& pushes() const { return pushes_; }
  // Returns the path on which no bytes move, according to the last heartbeat. Not set means that
  // there is none.
  const std::optional<PathStall>& path_stall() const { return path_stall_; }
  double push_bytes_per_second(absl::Time now) const { return push_bytes_.PerSecond(now); }
  double pull_bytes_per_second(absl::Time now) const { return pull_bytes_.PerSecond(now); }

  // Returns the pace of the worker's process. It includes all incarnations of that process.
  const MemberPace& pace() const { return pace_; }
  // Returns the expected time of a round with `grant`, calculated from recent rounds. If there is
  // no grant, uses the size of the last reported grant. Not set means that the grant has an
  // evaluation, or that the time is not known.
  std::optional<absl::Duration> UsualRound(const std::optional<messages::Grant>& grant) const;

  // Records that the worker is dropped because it holds up other workers. It must rest for `rest`.
  // - `lacks_time` is true: the next incarnation of this process gets more time for its work.
  // - `lacks_time` is false: a new process of this name must rest too, because its pushes would
  //   occupy the same space.
  void OnDropped(absl::Duration rest, bool lacks_time, absl::Time now);
  // Returns how often in a row incarnations of this process were dropped because they lacked time.
  // A report sets the number to 0.
  int times_dropped() const { return memory_.times_dropped; }
  // Returns the time until which the worker must rest: it may not join before.
  absl::Time rests_until() const { return memory_.rests_until; }
  // Records that other workers have waited for an incarnation of this name that has ended without
  // finishing its round.
  void NoteWaitedFor() { was_waited_for_ = true; }
  // Returns true if NoteWaitedFor() was called since the coordinator's process began.
  bool was_waited_for() const { return was_waited_for_; }

 private:
  Memory memory_;
  bool was_waited_for_ = false;
  std::string activity_;
  MemberPace pace_;
  int64_t last_num_samples_ = 0;  // samples of the last reported grant
  uint64_t bytes_pushed_ = 0;     // this and the next: totals of the last heartbeat
  uint64_t bytes_pulled_ = 0;
  absl::Time same_since_ = absl::InfinitePast();
  absl::Time active_since_ = absl::InfinitePast();  // start of activity_
  absl::Time moved_at_ = absl::InfinitePast();
  MemberPushes pushes_;
  std::optional<PathStall> path_stall_;
  RateMeter push_bytes_;
  RateMeter pull_bytes_;
};

}  // namespace lodestar::stragglers
