// SPDX-License-Identifier: Apache-2.0

// Finds the workers that hold up other workers. Says when such a worker must be dropped, and how
// long it must then rest before it may join again. The caller passes in facts, writes the messages
// and drops the workers.
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

namespace lodestar::stragglers {

// State of a worker in its present incarnation.
struct WorkerFacts {
  WorkerId id;
  const messages::Grant* grant = nullptr;        // null means that the worker holds no grant
  absl::Time given_at = absl::InfinitePast();    // time when the worker got the grant
  absl::Time idle_since = absl::InfinitePast();  // time since which the worker could ask for work
  bool is_waiting = false;                       // true means that the worker has asked for a grant
  bool is_leaving = false;                       // true means that the worker wants no new work
  bool has_reported = false;
  bool has_completed_round = false;    // true if its name has completed a round, in any incarnation
  absl::string_view certificate = {};  // empty means that the worker has no certificate
};

// State of the cluster at one moment. It has pointers into the cluster, so it is valid only until
// the cluster changes.
struct StragglerFacts {
  struct Server {
    absl::Time heard_at = absl::InfiniteFuture();  // time of the last sign of life
    absl::Time runs_since = absl::InfinitePast();
  };
  struct OpenRound {
    Round round;
    absl::Time opened_at;
    WorkerId front;  // first worker in the order of summation that has not reported
    absl::Time front_since;
  };
  // A worker that has to supply the first weights, and for which other workers wait.
  struct Supplier {
    WorkerId worker;
    absl::Time others_since;
  };

  bool is_working = false;     // true: the job has work for workers, and all servers are there
  bool uses_rosters = true;    // true: members share rounds; false: each member has its own
  bool awaits_asking = false;  // true: the next round waits for idle members to ask for work
  int required_members = 1;    // members that a round needs
  absl::Duration usual_round;  // 0 means not known
  // Time at which a server last came back after an absence. The time before it does not count
  // against workers, because they waited for the server.
  absl::Time back_at = absl::InfinitePast();
  std::vector<Server> servers = {};       // by shard
  std::vector<OpenRound> rounds = {};     // ascending
  std::vector<WorkerFacts> members = {};  // ascending by ID
  std::optional<Supplier> supplier = {};
};

// A worker that holds up the others.
struct Stall {
  enum class Kind : uint8_t {
    kPath,        // The transfers of the worker do not move.
    kWeights,     // The worker is to supply the first weights of the job.
    kAsking,      // The worker could ask for work, and does not.
    kReport,      // The worker owes the report of `round`.
    kPush,        // `push` comes too slowly.
    kSilentPush,  // No byte of `push` comes, although the server reads.
    kSpace,       // `push` and its other pushes occupy space that others wait for.
  };
  WorkerId worker;
  Kind kind = Kind::kReport;
  std::optional<Round> round = {};
  std::optional<absl::Duration> usually = {};  // usual time of this worker for the round
  std::optional<MemberPushes::Unfinished> push = {};
  absl::Time since;
  // Time when the worker is dropped, even if its heartbeats go on (see RoundPatience). Infinite
  // future means that it is not dropped, because that would help no other worker.
  absl::Time until = absl::InfiniteFuture();
  // How long the worker must rest if it is dropped now. Not set means that it may join again at
  // once.
  std::optional<absl::Duration> rest = {};

  // Returns true if `until` has passed. For a push, the server must also have reported since
  // `until`, so that the received bytes are known.
  bool IsOver(absl::Time now) const {
    return now >= until && (!push.has_value() || push->told_at >= until);
  }
};

// How long a worker must still wait before it may join again, because other workers had to wait.
struct Rest {
  enum class Kind : uint8_t {
    kNone,
    kOwn,          // because of the worker itself
    kCertificate,  // because of another worker with its certificate
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
    absl::Duration supplier_rest;  // rest of a worker that did not supply the first weights
  };

  explicit StragglerDetector(const Limits& limits)
      : patience_(limits.lease, limits.round_timeout), supplier_rest_(limits.supplier_rest) {}

  void BeginLife(WorkerId worker, bool is_same_process) {
    workers_[worker].BeginLife(is_same_process);
  }
  void OnHeartbeat(const messages::HeartbeatCall& call, absl::Time now) {
    workers_[call.life.worker].OnHeartbeat(call, now);
  }
  // Records the server's report about the space for pushes of `worker`.
  void OnPushSpace(int shard, const sync::PushSpace& space, const sync::Pusher& worker,
                   absl::Time now) {
    workers_[worker.worker].pushes().OnSpace(shard, space, worker, now);
  }
  void OnGrant(WorkerId worker) { workers_[worker].OnGrant(); }
  // See WorkerActivity::OnReport().
  void OnReport(WorkerId worker, const std::optional<messages::Grant>& grant, absl::Duration took) {
    workers_[worker].OnReport(grant, took);
  }
  // Records that the worker of `stall` is about to be dropped because of the stall.
  void OnDropped(const Stall& stall, absl::Time now);
  // Must be called after the incarnations in `ended` have ended and were removed from
  // facts.members.
  //
  // If other members have waited for an ended incarnation, its certificate rests for as long as
  // they have waited: no new name with this certificate may join. Without this rule, a worker could
  // come back under a new name at once.
  //
  // Returns the members, ascending, that have no grant and rest because of their certificate. The
  // caller must drop them. If too few members for a round would be left, returns no member.
  std::vector<WorkerId> OnEnded(absl::Span<const WorkerFacts> ended, const StragglerFacts& facts,
                                absl::Time now);
  // Returns the activity of the worker. Returns an empty activity if the worker is not known.
  const WorkerActivity& Of(WorkerId worker) const;
  void Resume(WorkerId worker, const WorkerActivity::Memory& memory) {
    workers_[worker] = WorkerActivity(memory);
  }
  void Forget(WorkerId worker) { workers_.erase(worker); }
  void ForgetWorkers() { workers_.clear(); }

  // Returns the stalls of all kinds except kPath, ascending by worker. If a member has several
  // stalls, returns only the one that ends first. If a worker has to supply the first weights,
  // returns only its stall, of kind kWeights. Otherwise returns no stall if no member waits.
  //
  // - If a member pushes, it may wait until the members before it in the order of summation have
  //   reported. Its time for the report begins then.
  // - If a server holds a member's push, the member's time begins when the server has space for it.
  // - If no member makes progress, pushes have no time limit, because the cause may be a server
  //   that cannot be reached.
  std::vector<Stall> Stalls(const StragglerFacts& facts, absl::Time now) const;
  // Returns the stalls of kind kPath whose `until` has passed, ascending by worker. The heartbeats
  // of such a worker arrive, but its transfers do not move. Returns no stall in two cases:
  // - No other member makes progress.
  // - Each member has rounds of its own, and no member waits.
  std::vector<Stall> PathStalls(const StragglerFacts& facts, absl::Time now) const;
  // Returns the member with a stall if exactly one member has one. Otherwise, and if the stall is
  // kWeights, the result is not set.
  std::optional<WorkerId> OnlyStalled(const StragglerFacts& facts, absl::Time now) const;
  // Returns the time by which the worker must have reported its grant. The worker could begin to
  // work on the grant at `since`.
  absl::Time ReportDueAt(const WorkerFacts& worker, absl::Time since,
                         absl::Duration usual_round) const;

  // Returns how long the worker must still rest before it may join. A rest of its certificate
  // counts too, unless this name has completed a round or other workers have waited for this name.
  Rest RestOf(const WorkerFacts& worker, absl::Time now) const;

  // Counts a round that waited for all of these members. See StragglerWatch.
  StragglerWatch::Straggler OnRound(absl::Span<const StragglerWatch::Member> members) {
    return watch_.OnRound(members);
  }

 private:
  absl::Duration RestWithCertificate(const WorkerFacts& worker, absl::Time now) const;
  // Returns true if the member waits for other members, for space at a server, or for work.
  bool IsWaiting(const WorkerFacts& worker, const StragglerFacts& facts) const;
  bool IsAnyoneWaiting(const StragglerFacts& facts) const;
  // Returns the stall of a member for which IsWaiting() is false.
  std::optional<Stall> WorkStall(const WorkerFacts& worker, const StragglerFacts& facts) const;
  // Returns the stall that ends first among those of the worker's unfinished pushes.
  std::optional<Stall> PushStall(WorkerId worker, const StragglerFacts& facts) const;
  // Returns the stall of a worker that has a grant of an open round, if its pulls or its path do
  // not move.
  std::optional<Stall> PathStall(const WorkerFacts& worker, const StragglerFacts& facts) const;

  const RoundPatience patience_;
  const absl::Duration supplier_rest_;
  const WorkerActivity unknown_;
  std::map<WorkerId, WorkerActivity> workers_;
  // Time until which no new name of a certificate may join. OnEnded() removes times that have
  // passed.
  std::map<std::string, absl::Time, std::less<>> certificates_rest_until_;
  StragglerWatch watch_;
};

}  // namespace lodestar::stragglers
