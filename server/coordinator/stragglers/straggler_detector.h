// SPDX-License-Identifier: Apache-2.0

// Finds the workers that hold up the others, and says when they must be dropped and how long they
// rest afterwards. The detector remembers what workers do and how long they take. The caller passes
// facts in, writes the messages and carries out the verdicts.
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

// The state of a worker in this incarnation.
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

// The state of the cluster at one moment. Valid while the cluster does not change.
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
  // The worker that is to supply the first weights while other workers wait for them.
  struct Supplier {
    WorkerId worker;
    absl::Time others_since;
  };

  bool is_working = false;     // true: the job has work for workers, and all servers are there
  bool uses_rosters = true;    // true: members share rounds; false: each member has its own
  bool awaits_asking = false;  // true: the next round waits for idle members to ask for work
  int required_members = 1;    // members that a round needs
  absl::Duration usual_round;  // 0 means not known
  // Last time at which a server came back after an absence. Waits before this time were due to a
  // server.
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
  // Time when the worker is dropped, whatever its heartbeats say. See RoundPatience. Infinite
  // future means that it is not dropped, because a drop would help no other worker.
  absl::Time until = absl::InfiniteFuture();
  // Time for which the worker rests if it is dropped now. Not set means that it may come back at
  // once.
  std::optional<absl::Duration> rest = {};

  // Returns true if the time of the worker is over. For a push, the server must have reported after
  // `until`, so that it is known how much has come.
  bool IsOver(absl::Time now) const {
    return now >= until && (!push.has_value() || push->told_at >= until);
  }
};

// How long a worker must still wait before it may join, because others have waited for it.
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

  // Workers.
  void BeginLife(WorkerId worker, bool is_same_process) {
    workers_[worker].BeginLife(is_same_process);
  }
  void OnHeartbeat(const messages::HeartbeatCall& call, absl::Time now) {
    workers_[call.life.worker].OnHeartbeat(call, now);
  }
  // Records a sign of life of the server of `shard`.
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
  // Must be called when the incarnations of `ended` have ended. facts.members must not contain them
  // any more. If others have waited for one of them, new names of its certificate rest as long as
  // the others have waited, because anyone with the certificate can make new names. Returns the
  // members without a grant that rest from now on, ascending. The caller drops them, so that they
  // do not hold up the others one after another. Returns no member if the rest would be too few for
  // a round.
  std::vector<WorkerId> OnEnded(absl::Span<const WorkerFacts> ended, const StragglerFacts& facts,
                                absl::Time now);
  // Returns the activity of the worker. It is empty if the worker is not known.
  const WorkerActivity& Of(WorkerId worker) const;
  void Resume(WorkerId worker, const WorkerActivity::Memory& memory) {
    workers_[worker] = WorkerActivity(memory);
  }
  void Forget(WorkerId worker) { workers_.erase(worker); }
  void ForgetWorkers() { workers_.clear(); }

  // Stalls.
  // Returns the stalls of all kinds but kPath, ascending by worker. If a member has several stalls,
  // only the one that ends first is returned. Empty if no member waits, because a drop would help
  // no member.
  //
  // If the heartbeats of a member say that it has pushed, it may be waiting for the members before
  // it in the order of summation. Its time begins when these have reported. If a server holds a
  // member's push, its time begins when the server has space for the push. A push that is not whole
  // must make progress, however slow other members are. If no member makes progress, no push runs
  // out of time, because the cause is rather a server that cannot be reached.
  std::vector<Stall> Stalls(const StragglerFacts& facts, absl::Time now) const;
  // Returns the stalls of kind kPath whose time is over, ascending by worker. A round has then
  // waited long for a worker whose heartbeats come, but whose transfers do not move. Empty if no
  // other member makes progress, or if members have rounds of their own and no member waits.
  std::vector<Stall> PathStalls(const StragglerFacts& facts, absl::Time now) const;
  // Returns the only member with a stall. Not set means that no member or several members have a
  // stall, or that the stall is kWeights.
  std::optional<WorkerId> OnlyStalled(const StragglerFacts& facts, absl::Time now) const;
  // Returns the time by which the worker must have reported its grant. `since` is the time since
  // which it could work on the grant.
  absl::Time ReportDueAt(const WorkerFacts& worker, absl::Time since,
                         absl::Duration usual_round) const;

  // Rests.
  // Returns how long the worker, which is about to join, must still rest. A name also rests with
  // its certificate, unless it has completed a round or others have waited for the name itself.
  Rest RestOf(const WorkerFacts& worker, absl::Time now) const;

  // Counts a round that waited for all of these members. See StragglerWatch.
  StragglerWatch::Straggler OnRound(absl::Span<const StragglerWatch::Member> members) {
    return watch_.OnRound(members);
  }

 private:
  absl::Duration RestWithCertificate(const WorkerFacts& worker, absl::Time now) const;
  // Returns true if the member waits for other members or for work.
  bool IsWaiting(const WorkerFacts& worker, const StragglerFacts& facts) const;
  bool IsAnyoneWaiting(const StragglerFacts& facts) const;
  // Returns the stall of a member that does not wait for other members.
  std::optional<Stall> WorkStall(const WorkerFacts& worker, const StragglerFacts& facts) const;
  // Returns the stall that ends first among those of the worker's unfinished pushes.
  std::optional<Stall> PushStall(WorkerId worker, const StragglerFacts& facts) const;
  // Returns the stall of a worker that holds a grant of an open round and whose transfers do not
  // move.
  std::optional<Stall> PathStall(const WorkerFacts& worker, const StragglerFacts& facts) const;

  const RoundPatience patience_;
  const absl::Duration supplier_rest_;
  const WorkerActivity unknown_;
  std::map<WorkerId, WorkerActivity> workers_;
  // Time until which new names of a certificate rest. OnEnded() removes times that are over.
  std::map<std::string, absl::Time, std::less<>> certificates_rest_until_;
  StragglerWatch watch_;
};

}  // namespace lodestar::stragglers
