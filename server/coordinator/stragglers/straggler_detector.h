// Which workers hold up the others, when that is over, and how long they rest then. The detector
// remembers what workers do and how long they take. The caller passes facts in, and words and
// carries out the verdicts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/stragglers/member_pushes.h"
#include "server/coordinator/stragglers/round_patience.h"
#include "server/coordinator/stragglers/straggler_watch.h"
#include "server/coordinator/stragglers/worker_activity.h"
#include "server/sync/push_space.h"

namespace lodestar {

// What a worker holds, waits for and has done in this incarnation.
struct WorkerFacts {
  WorkerId id;
  const Grant* grant = nullptr;                  // Null means that the worker holds none.
  absl::Time given_at = absl::InfinitePast();    // when it got the grant
  absl::Time idle_since = absl::InfinitePast();  // since when it could have asked for work
  bool is_waiting = false;                       // It has asked for a grant.
  bool is_leaving = false;                       // It wants no new work.
  bool has_reported = false;
  bool has_completed_round = false;    // in any incarnation of its name
  absl::string_view certificate = {};  // Empty means that the worker has none.
};

// One moment of the cluster. Valid while the cluster is unchanged.
struct StragglerFacts {
  struct Server {
    absl::Time heard_at = absl::InfiniteFuture();  // last
    absl::Time runs_since = absl::InfinitePast();
  };
  struct OpenRound {
    Round round;
    absl::Time opened_at;
    WorkerId front;  // the first in the order of summation that has not reported
    absl::Time front_since;
  };
  // The worker that is to supply the first weights, which others wait for.
  struct Supplier {
    WorkerId worker;
    absl::Time others_since;
  };

  bool is_working = false;     // The job has work for workers, and all servers are there.
  bool uses_rosters = true;    // Members share rounds. Else each has rounds of its own.
  bool awaits_asking = false;  // The next round waits for members without work to ask for some.
  int required_members = 1;    // for a round
  absl::Duration usual_round;  // 0 means not known.
  // When a server was back the last time. What workers waited for until then is a server.
  absl::Time back_at = absl::InfinitePast();
  std::vector<Server> servers = {};       // by shard
  std::vector<OpenRound> rounds = {};     // ascending
  std::vector<WorkerFacts> members = {};  // ascending by ID
  std::optional<Supplier> supplier = {};
};

// A worker that holds up the others.
struct Stall {
  enum class Kind : uint8_t {
    kPath,        // Its transfers do not move.
    kWeights,     // It is to supply the first weights of the job.
    kAsking,      // It could ask for work, and does not.
    kReport,      // It owes the report of `round`.
    kPush,        // `push` does not come at its pace.
    kSilentPush,  // Nothing of `push` comes, and the server reads.
    kSpace,       // It keeps space of a server that others wait for, with `push` and others.
  };
  WorkerId worker;
  Kind kind = Kind::kReport;
  std::optional<Round> round = {};
  std::optional<absl::Duration> usually = {};  // the time that such a round takes this worker
  std::optional<MemberPushes::Unfinished> push = {};
  absl::Time since;
  // When the worker is dropped, whatever its heartbeats say: see RoundPatience. Infinite future
  // means that it is not dropped, because that would serve no other.
  absl::Time until = absl::InfiniteFuture();
  // How long the worker rests if it is dropped now. Not set means that it may come back at once.
  std::optional<absl::Duration> rest = {};

  // Whether its time is over. How far a push is, is known as of its server's last sign of life.
  bool IsOver(absl::Time now) const {
    return now >= until && (!push.has_value() || push->told_at >= until);
  }
};

// How long a worker is still kept from joining, because others have waited.
struct Rest {
  enum class Kind : uint8_t {
    kNone,
    kOwn,          // for the worker itself
    kCertificate,  // for another worker of its certificate
  };
  Kind kind = Kind::kNone;
  absl::Duration left = absl::ZeroDuration();
  friend bool operator==(const Rest&, const Rest&) = default;
};

class StragglerDetector {
 public:
  struct Limits {
    absl::Duration lease;
    absl::Duration round_timeout;  // --round_timeout
    absl::Duration supplier_rest;  // of a worker that did not supply the first weights
  };

  explicit StragglerDetector(const Limits& limits)
      : patience_(limits.lease, limits.round_timeout), supplier_rest_(limits.supplier_rest) {}

  // Workers.
  void BeginLife(WorkerId worker, bool is_same_process) {
    workers_[worker].BeginLife(is_same_process);
  }
  void OnHeartbeat(const HeartbeatCall& call, absl::Time now) {
    workers_[call.life.worker].OnHeartbeat(call, now);
  }
  // The server of `shard` has given a sign of life.
  void OnPushSpace(int shard, const PushSpace& space, const Pusher& worker, absl::Time now) {
    workers_[worker.worker].pushes().OnSpace(shard, space, worker, now);
  }
  void OnGrant(WorkerId worker) { workers_[worker].OnGrant(); }
  // See WorkerActivity::OnReport().
  void OnReport(WorkerId worker, const std::optional<Grant>& grant, absl::Duration took) {
    workers_[worker].OnReport(grant, took);
  }
  // The worker of `stall` is about to be dropped for it.
  void OnDropped(const Stall& stall, absl::Time now);
  // The incarnations of `ended` are over, and `facts` have them no more in `members`. If others
  // have waited for one of them, new names of its certificate rest for as long, because names cost
  // nothing. Returns the members that rest from then on and have no grant, ascending. They are to
  // be dropped, so that they do not hold the others up one after the other.
  std::vector<WorkerId> OnEnded(absl::Span<const WorkerFacts> ended, const StragglerFacts& facts,
                                absl::Time now);
  // Returns what is known of the worker, which is nothing if it is unknown.
  const WorkerActivity& Of(WorkerId worker) const;
  void Resume(WorkerId worker, const WorkerActivity::Memory& memory) {
    workers_[worker] = WorkerActivity(memory);
  }
  void Forget(WorkerId worker) { workers_.erase(worker); }
  void ForgetWorkers() { workers_.clear(); }

  // Stalls.
  // Returns the stalls of any kind but kPath, at most one per worker, ascending by worker. If a
  // member has several, that with the least time left is returned. Empty if no member waits,
  // because a drop would serve none.
  //
  // A member that has pushed, as its heartbeats say, may only wait for those before it in the order
  // of summation: its time begins when they are done. A member whose push a server holds is not
  // waited for: its time begins when the server has space for it. A push that is not whole has to
  // get on, whichever others are slow. If no member gets on, no push is over: it is rather a server
  // that cannot be reached.
  std::vector<Stall> Stalls(const StragglerFacts& facts, absl::Time now) const;
  // Returns the stalls of kind kPath that are over, ascending by worker: a round has waited long
  // for a worker whose heartbeats come, but not a byte of what it pushes or pulls. Empty if no
  // other member gets on, or if members have rounds of their own and none waits.
  std::vector<Stall> PathStalls(const StragglerFacts& facts, absl::Time now) const;
  // Returns the member that alone has a stall, while others wait.
  std::optional<WorkerId> OnlyStalled(const StragglerFacts& facts, absl::Time now) const;
  // Returns when a worker must have reported the grant that it has and could work on since `since`.
  absl::Time ReportDueAt(const WorkerFacts& worker, absl::Time since,
                         absl::Duration usual_round) const;

  // Rests.
  // Returns how long the worker, which is about to join, still rests. A name that has not completed
  // a round, and that others have not waited for, rests with its certificate as well.
  Rest RestOf(const WorkerFacts& worker, absl::Time now) const;

  // A round that waited for all of these is over. See StragglerWatch.
  StragglerWatch::Straggler OnRound(absl::Span<const StragglerWatch::Member> members) {
    return watch_.OnRound(members);
  }

 private:
  absl::Duration RestWithCertificate(const WorkerFacts& worker, absl::Time now) const;
  // Returns whether the member could go on if others were done.
  bool IsWaiting(const WorkerFacts& worker, const StragglerFacts& facts) const;
  bool IsAnyoneWaiting(const StragglerFacts& facts) const;
  // Returns the stall of a member that waits for no other.
  std::optional<Stall> WorkStall(const WorkerFacts& worker, const StragglerFacts& facts) const;
  // Returns the stall of what this worker pushes and has not finished.
  std::optional<Stall> PushStall(WorkerId worker, const StragglerFacts& facts) const;
  // Returns the stall of a worker that holds an open round, if its transfers do not move.
  std::optional<Stall> PathStall(const WorkerFacts& worker, const StragglerFacts& facts) const;

  const RoundPatience patience_;
  const absl::Duration supplier_rest_;
  const WorkerActivity unknown_;
  std::map<WorkerId, WorkerActivity> workers_;
  // Until when the new names of a certificate rest. OnEnded() removes what is over.
  std::map<std::string, absl::Time, std::less<>> certificates_rest_until_;
  StragglerWatch watch_;
};

}  // namespace lodestar
