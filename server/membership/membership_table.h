// The workers of the cluster: a pure state machine from (now, event) to views. It has no lock,
// clock or thread; the coordinator serializes calls.
//
//                 Register (new name, or old name after its life ended: next incarnation)
//                     |
//                     v            Join                Leave
//      (none) --> kRegistered ------------> kMember ---------> kLeft
//                     |                        |
//                     |   Expire: lease over   |
//                     +------> kExpired <------+
//                     |   Drop: it must go     |
//                     +------> kDropped <------+
//
// Register with the same name and instance during a life is a reconnect and changes nothing. The
// view changes exactly when the set of members does. A name keeps its id as long as it is
// remembered: of those whose life has ended, the last kMaxEnded are.
//
// Strangers are names that have never joined since this process knows them. They take no place from
// others: the kMaxWaiting living ones that registered last may go on, and of those that have ended
// the last kMaxEndedStrangers are remembered.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "common/runtime/worker_name.h"

namespace lodestar {

enum class WorkerState : uint8_t { kRegistered, kMember, kLeft, kExpired, kDropped };
absl::string_view WorkerStateName(WorkerState state);

struct WorkerRecord {
  WorkerId id;
  Incarnation incarnation;
  std::string name;
  uint64_t instance_id = 0;
  WorkerState state = WorkerState::kRegistered;
  absl::Time renewed_at;                       // start of the lease
  int64_t times_renewed = 0;                   // by the worker, since it registered
  absl::Time ended_at = absl::InfinitePast();  // of a life that has ended
  std::string end_reason;
  bool is_away = false;  // its life ended with what the servers had, and it has not come since

  friend bool operator==(const WorkerRecord&, const WorkerRecord&) = default;

  bool is_alive() const { return state == WorkerState::kRegistered || is_member(); }
  bool is_member() const { return state == WorkerState::kMember; }
};

// What outlives a restart: names keep their ids, and no id or incarnation is given twice.
struct MembershipState {
  struct Name {
    std::string name;
    WorkerId id;
    bool was_alive = true;
    friend bool operator==(const Name&, const Name&) = default;
  };
  std::vector<Name> names;  // ascending by id
  WorkerId last_id;         // ever given
  Incarnation last_incarnation;
  ViewId view;
  friend bool operator==(const MembershipState&, const MembershipState&) = default;
};

// A life that ended, for those who must forget it.
struct EndedLife {
  WorkerId id;
  Incarnation incarnation;
  std::string name;
  bool was_member = false;
  std::string reason;
};

class MembershipTable {
 public:
  static constexpr int kMaxNameBytes = kMaxWorkerNameBytes;
  static constexpr int kMaxWorkers = 1 << 16;  // that live, and those that are remembered
  static constexpr int kMaxEnded = 1 << 12;
  static constexpr int kMaxWaiting = 1 << 12;
  static constexpr int kMaxEndedStrangers = 1 << 8;

  struct Config {
    absl::Duration lease =
        absl::Seconds(10);  // short: losses are noticed soon; long: slow networks
  };

  struct Admission {
    WorkerId id;
    Incarnation incarnation;
    bool is_reconnect = false;  // the life goes on
  };

  explicit MembershipTable(const Config& config) : config_(config) {}
  // Returns a table without living workers: all must register again. Incarnations start above
  // `floor`, which must exceed all that were ever given, also after the checkpoint was written.
  // Errors: InvalidArgument for repeated names, or ids that do not ascend.
  static absl::StatusOr<MembershipTable> Restore(const Config& config, const MembershipState& state,
                                                 Incarnation floor, absl::Time now);
  // Takes over the ends of workers from `former`, which knows more than what was restored. These
  // workers are not waited for.
  void RememberEnds(const MembershipTable& former);
  MembershipState Export() const;
  // The highest that was given to a worker.
  Incarnation last_incarnation() const { return last_incarnation_; }

  // All of it, lives and all.
  struct Memory {
    std::vector<WorkerRecord> workers;  // ascending by id
    std::vector<WorkerId> ended;        // in the order in which they ended
    WorkerId last_id;
    Incarnation last_incarnation;
    ViewId view;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // Without when and how often leases were renewed.
  Memory memory() const;
  // Returns a table in which every worker that lived lives on, with a whole lease. Errors: DataLoss
  // (names, ids or ends that cannot be).
  static absl::StatusOr<MembershipTable> Resume(const Config& config, Memory memory,
                                                absl::Time now);

  // Errors: InvalidArgument (name); AlreadyExists, naming the holder, its lease and what to do,
  // with RetryAfter and TimesRenewed; ResourceExhausted (kMaxWorkers).
  absl::StatusOr<Admission> Register(absl::string_view name, uint64_t instance_id, absl::Time now);
  // Repeats are harmless. Errors: Aborted.
  absl::Status Join(WorkerId id, Incarnation incarnation, absl::Time now);
  // Errors: Aborted if this life is over: register again.
  absl::Status Renew(WorkerId id, Incarnation incarnation, absl::Time now);
  // Gives whole leases to all that live: they could not renew them.
  void RenewAll(absl::Time now);
  // By the worker's own wish. Errors: Aborted.
  absl::StatusOr<EndedLife> Leave(WorkerId id, Incarnation incarnation, absl::string_view reason,
                                  absl::Time now);
  // Whether this life has ended so, and is the last one of its worker.
  bool HasLeft(WorkerId id, Incarnation incarnation) const;
  // Whatever the worker wishes. Errors: Aborted.
  absl::StatusOr<EndedLife> Drop(WorkerId id, Incarnation incarnation, absl::string_view reason,
                                 absl::Time now);
  // What the servers had is gone, and nothing takes its place: ends all lives, ascending by id.
  std::vector<EndedLife> EndAll(absl::string_view reason, absl::Time now);
  // Ends the lives whose lease is over, and those of strangers that are too many, ascending by id.
  std::vector<EndedLife> Expire(absl::Time now);

  // Ok if this life goes on. Errors: Aborted.
  absl::Status Check(WorkerId id, Incarnation incarnation) const;
  ViewId view() const { return view_; }
  // Null if there is none.
  const WorkerRecord* Find(WorkerId id) const;
  const WorkerRecord* FindByName(absl::string_view name) const;
  // Members of the view, ascending by id.
  std::vector<const WorkerRecord*> Members() const;
  // All workers that are remembered, ascending by id.
  const std::map<WorkerId, WorkerRecord>& workers() const { return workers_; }
  const Config& config() const { return config_; }

 private:
  void BeginLife(WorkerRecord& worker, uint64_t instance_id, absl::Time now);
  // Strangers that have to make room.
  std::vector<WorkerId> WaitingTooMany() const;
  // The ended one of `id`.
  void Forget(WorkerId id);
  EndedLife EndLife(WorkerRecord& worker, WorkerState state, std::string reason, absl::Time now);

  Config config_;
  std::map<WorkerId, WorkerRecord> workers_;
  std::map<std::string, WorkerId, std::less<>> ids_;
  std::deque<WorkerId> ended_;  // those who do not live, in the order in which they ended
  // Those that have registered since this process began, and have never joined.
  std::set<WorkerId> strangers_;
  std::deque<WorkerId> ended_strangers_;  // those of ended_
  WorkerId last_id_;
  Incarnation last_incarnation_;
  ViewId view_;
};

}  // namespace lodestar
