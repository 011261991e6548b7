// What a worker does at the moment, by its heartbeats and by what servers say of its pushes; how
// long it usually takes; and whether it was dropped for holding up the others. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "server/coordinator/stragglers/member_pushes.h"
#include "server/coordinator/stragglers/rate_meter.h"
#include "server/coordinator/stragglers/round_patience.h"

namespace lodestar {

class WorkerActivity {
 public:
  // What outlives the coordinator's process.
  struct Memory {
    int times_dropped = 0;
    absl::Time rests_until = absl::InfinitePast();
    bool kept_space = false;  // so any other process of this name rests as well
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // The worker waits for a server, and nothing moves to or from that server.
  struct PathStall {
    int shard = 0;
    absl::Time since;
  };

  WorkerActivity() = default;
  explicit WorkerActivity(const Memory& memory) : memory_(memory) {}
  const Memory& memory() const { return memory_; }

  void BeginLife(bool is_same_process);
  void EndLife();
  void OnHeartbeat(const HeartbeatCall& call, absl::Time now);
  void OnGrant() { pushes_.OnGrant(); }
  // The worker has reported, and `grant`, if it held one, took `time`.
  void OnReport(const std::optional<Grant>& grant, absl::Duration time);

  // What the worker does, by its last heartbeat. Empty means that there was none in this
  // incarnation.
  const std::string& activity() const { return activity_; }
  // By the last heartbeat a contribution has left and is not yet acknowledged.
  bool is_delivering() const { return activity_ == "push"; }
  bool is_pulling() const { return activity_ == "pull"; }
  // Returns false while the worker computes or pulls. Clients of another make may not say what they
  // do.
  bool may_wait_behind_others() const {
    return activity_ != "compute" && activity_ != "pull" && activity_ != "wait";
  }
  // Since when heartbeats say the same: no other activity, and no byte more pushed or pulled.
  absl::Time same_since() const { return same_since_; }
  // When heartbeats last told of more bytes pushed or pulled.
  absl::Time moved_at() const { return moved_at_; }
  // Returns what servers say of the worker's pushes in this incarnation, whatever its heartbeats
  // say.
  MemberPushes& pushes() { return pushes_; }
  const MemberPushes& pushes() const { return pushes_; }
  // Returns what the last heartbeat said of transfers that do not move.
  const std::optional<PathStall>& path_stall() const { return path_stall_; }
  double push_bytes_per_second(absl::Time now) const { return push_bytes_.PerSecond(now); }
  double pull_bytes_per_second(absl::Time now) const { return pull_bytes_.PerSecond(now); }

  // Returns the pace of the worker's process, over all its incarnations.
  const MemberPace& pace() const { return pace_; }
  // How long a round has lately taken: one of `grant`, or of the last one that was reported. Not
  // set for evaluations.
  std::optional<absl::Duration> UsualRound(const std::optional<Grant>& grant) const;

  // The worker is dropped because it holds up the others, and rests for `rest`. If it lacked time,
  // its next incarnation has more time for its work. Else any other process of its name rests as
  // well, because it would keep the same space over the same path.
  void OnDropped(absl::Duration rest, bool lacks_time, absl::Time now);
  // How often in a row incarnations of this process were dropped because they lacked time. A report
  // ends the row.
  int times_dropped() const { return memory_.times_dropped; }
  // Until then others are to go on without the worker.
  absl::Time rests_until() const { return memory_.rests_until; }
  // Others have waited for an incarnation of this name that ended with its round at hand.
  void NoteWaitedFor() { was_waited_for_ = true; }
  // Returns true if NoteWaitedFor() was called since the coordinator's process began.
  bool was_waited_for() const { return was_waited_for_; }

 private:
  Memory memory_;
  bool was_waited_for_ = false;
  std::string activity_;
  MemberPace pace_;
  int64_t last_num_samples_ = 0;  // of the last grant that was reported
  uint64_t bytes_pushed_ = 0;     // by the last heartbeat
  uint64_t bytes_pulled_ = 0;
  absl::Time same_since_ = absl::InfinitePast();
  absl::Time active_since_ = absl::InfinitePast();  // with activity_
  absl::Time moved_at_ = absl::InfinitePast();
  MemberPushes pushes_;
  std::optional<PathStall> path_stall_;
  RateMeter push_bytes_;
  RateMeter pull_bytes_;
};

}  // namespace lodestar
