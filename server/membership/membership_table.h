// SPDX-License-Identifier: Apache-2.0

// MembershipTable holds the workers of the cluster. It is a pure state machine from (now, event) to
// views. It has no lock, clock or thread; the coordinator serializes calls.
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
// If a worker registers again with the same name and instance during its incarnation, it reconnects
// and nothing changes. The view changes exactly when the set of members does. A name keeps its id
// as long as the table remembers the name. Of the workers whose incarnation has ended, the table
// remembers the last kMaxEnded.
//
// Strangers are workers with new names that have never joined. They cannot use up the places of
// other workers, because the table keeps only:
// - the kMaxWaiting living strangers that registered last
// - the last kMaxEndedStrangers of those whose incarnation has ended
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

namespace lodestar::membership {

enum class WorkerState : uint8_t { kRegistered, kMember, kLeft, kExpired, kDropped };
absl::string_view WorkerStateName(WorkerState state);

struct WorkerRecord {
  WorkerId id;
  Incarnation incarnation;
  std::string name;
  uint64_t instance_id = 0;
  WorkerState state = WorkerState::kRegistered;
  absl::Time renewed_at;                       // start of the lease
  int64_t times_renewed = 0;                   // number of renewals since it registered
  absl::Time ended_at = absl::InfinitePast();  // set if its incarnation has ended
  std::string end_reason;
  // True: Restore() or EndAll() has ended the worker's incarnation, and the worker has not
  // registered again yet.
  bool is_away = false;

  friend bool operator==(const WorkerRecord&, const WorkerRecord&) = default;

  bool is_alive() const { return state == WorkerState::kRegistered || is_member(); }
  bool is_member() const { return state == WorkerState::kMember; }
};

// The part of the table that must survive a restart, so that names keep their ids, and no id or
// incarnation is given twice.
struct MembershipState {
  struct Name {
    std::string name;
    WorkerId id;
    bool was_alive = true;
    friend bool operator==(const Name&, const Name&) = default;
  };
  std::vector<Name> names;  // ascending by id
  WorkerId last_id;         // highest id that was ever given
  Incarnation last_incarnation;
  ViewId view;
  friend bool operator==(const MembershipState&, const MembershipState&) = default;
};

// EndedLife names an incarnation that has ended, so that other parts of the coordinator can forget
// it too.
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
  static constexpr int kMaxWorkers = 1 << 16;  // maximum number of living and remembered workers
  static constexpr int kMaxEnded = 1 << 12;
  static constexpr int kMaxWaiting = 1 << 12;
  static constexpr int kMaxEndedStrangers = 1 << 8;

  struct Config {
    // A shorter lease notices losses sooner. A longer lease suits slow networks.
    absl::Duration lease = absl::Seconds(10);
  };

  struct Admission {
    WorkerId id;
    Incarnation incarnation;
    bool is_reconnect = false;  // true: the incarnation goes on
  };

  explicit MembershipTable(const Config& config) : config_(config) {}
  // Returns a table that knows the names of `state`, without living workers: all must register
  // again. New incarnations are higher than `floor`. So `floor` must be at least the highest
  // incarnation that was ever given, even if it was given after the checkpoint was written. Errors:
  // InvalidArgument (repeated names, or ids that do not ascend).
  static absl::StatusOr<MembershipTable> Restore(const Config& config, const MembershipState& state,
                                                 Incarnation floor, absl::Time now);
  // Marks the workers as ended whose incarnation has ended in `former`. `former` is newer than the
  // restored state. So the job does not wait for these workers to come back.
  void RememberEnds(const MembershipTable& former);
  MembershipState Export() const;
  // Returns the highest incarnation that was given to a worker.
  Incarnation last_incarnation() const { return last_incarnation_; }

  // The complete state of the table, including incarnations.
  struct Memory {
    std::vector<WorkerRecord> workers;  // ascending by id
    std::vector<WorkerId> ended;        // in the order in which they ended
    WorkerId last_id;
    Incarnation last_incarnation;
    ViewId view;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // Returns the state, without the times and numbers of lease renewals.
  Memory memory() const;
  // Returns a table in which every living worker goes on, with a full lease. Errors: DataLoss
  // (impossible names, ids or ends).
  static absl::StatusOr<MembershipTable> Resume(const Config& config, Memory memory,
                                                absl::Time now);

  // Registers a worker. Errors: InvalidArgument (name); AlreadyExists, naming the holder, its lease
  // and what to do, with RetryAfter and TimesRenewed; ResourceExhausted (kMaxWorkers).
  absl::StatusOr<Admission> Register(absl::string_view name, uint64_t instance_id, absl::Time now);
  // Makes a registered worker a member. Repeats are harmless. Errors: Aborted.
  absl::Status Join(WorkerId id, Incarnation incarnation, absl::Time now);
  // Renews the worker's lease. Errors: Aborted (this incarnation is over; the worker must register
  // again).
  absl::Status Renew(WorkerId id, Incarnation incarnation, absl::Time now);
  // Gives full leases to all living workers. Call after a time in which the workers could not renew
  // their leases.
  void RenewAll(absl::Time now);
  // Ends the incarnation because the worker wants to leave. Errors: Aborted.
  absl::StatusOr<EndedLife> Leave(WorkerId id, Incarnation incarnation, absl::string_view reason,
                                  absl::Time now);
  // Returns true if this incarnation has left, and is the last one of its worker.
  bool HasLeft(WorkerId id, Incarnation incarnation) const;
  // Ends the incarnation even if the worker does not want to leave. Errors: Aborted.
  absl::StatusOr<EndedLife> Drop(WorkerId id, Incarnation incarnation, absl::string_view reason,
                                 absl::Time now);
  // Ends all incarnations. Their workers count as away until they register again. Returns the ended
  // incarnations, ascending by id.
  std::vector<EndedLife> EndAll(absl::string_view reason, absl::Time now);
  // Ends the incarnations whose lease is over, and those of living strangers beyond kMaxWaiting.
  // Returns the ended incarnations, ascending by id.
  std::vector<EndedLife> Expire(absl::Time now);

  // Checks that this incarnation goes on. Errors: Aborted.
  absl::Status Check(WorkerId id, Incarnation incarnation) const;
  ViewId view() const { return view_; }
  // Returns the number of lives that have begun in this table plus the number that have ended.
  int64_t num_life_changes() const { return num_life_changes_; }
  // Both functions return null if there is no such worker.
  const WorkerRecord* Find(WorkerId id) const;
  const WorkerRecord* FindByName(absl::string_view name) const;
  // Returns the members of the view, ascending by id.
  std::vector<const WorkerRecord*> Members() const;
  // Returns all workers that are remembered, ascending by id.
  const std::map<WorkerId, WorkerRecord>& workers() const { return workers_; }
  const Config& config() const { return config_; }

 private:
  void BeginLife(WorkerRecord& worker, uint64_t instance_id, absl::Time now);
  // Returns the living strangers beyond the kMaxWaiting that have registered last.
  std::vector<WorkerId> WaitingTooMany() const;
  // Forgets the worker `id`, whose incarnation has ended.
  void Forget(WorkerId id);
  EndedLife EndLife(WorkerRecord& worker, WorkerState state, std::string reason, absl::Time now);

  Config config_;
  std::map<WorkerId, WorkerRecord> workers_;
  std::map<std::string, WorkerId, std::less<>> ids_;
  std::deque<WorkerId> ended_;  // workers that have ended, in the order in which they ended
  // Workers that have registered since this process began, and have never joined.
  std::set<WorkerId> strangers_;
  std::deque<WorkerId> ended_strangers_;  // the strangers among ended_
  WorkerId last_id_;
  Incarnation last_incarnation_;
  ViewId view_;
  int64_t num_life_changes_ = 0;
};

}  // namespace lodestar::membership
