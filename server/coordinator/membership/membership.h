// SPDX-License-Identifier: Apache-2.0

// Membership knows the workers of a job: which names live, which processes use these names, and the
// addresses of these processes. It remembers the callers that were turned away, and what callers
// report about other servers. It decides which workers may come in. For this, it uses only facts
// about members. The caller passes facts in, writes the messages and carries out the verdicts.
// Pure: no lock, clock or thread.
//
// When the table forgets a worker, the worker's connection is still remembered until ForgetGone().
// So callers can read the connection of a life that has just ended.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/membership/closed_connections.h"
#include "server/coordinator/membership/recent_refusals.h"
#include "server/coordinator/membership/worker_connection.h"
#include "server/membership/membership_table.h"
#include "server/membership/registration_limit.h"

namespace lodestar::membership {

// The checkpoint that this process of the servers started from.
struct StartingCheckpoint {
  uint64_t saved_by = 0;            // incarnation of the servers that wrote the checkpoint
  uint64_t server_incarnation = 0;  // first incarnation of this process
  int64_t next_round = 0;           // next round according to the checkpoint
};

// Why a worker may not come in now.
struct MemberRefusal {
  enum class Kind : uint8_t {
    kNoRoom,        // The job has as many members as one round can have.
    kTooManyNames,  // Workers with the certificate `subject` use as many names as allowed.
    kOtherFrozen,   // The living worker `subject` has other frozen weights.
  };
  Kind kind = Kind::kNoRoom;
  std::string subject = {};
  // For kNoRoom: number of other members. For kTooManyNames: number of living names of the
  // certificate.
  int64_t present = 0;
  int64_t allowed = 0;           // maximum of `present`
  int64_t rounds_completed = 0;  // sum over the names of the certificate
  friend bool operator==(const MemberRefusal&, const MemberRefusal&) = default;
};

// An alarm for operators about a worker that registers.
struct MemberAlarm {
  enum class Kind : uint8_t {
    // The worker has contributed to earlier servers, but the present servers found their checkpoint
    // folder `folder` empty. So `folder` may be the wrong folder.
    kFormerStart,
    // The worker has contributed to servers whose job this run does not continue, according to the
    // checkpoint. The worker may belong to another job at the same address.
    kOtherServers,
    // Servers have acknowledged a report of the worker that the present servers do not have.
    kLacksReport,
  };
  Kind kind = Kind::kFormerStart;
  std::string worker = {};
  Round round = {};  // last acknowledged round of the worker
  std::string folder = {};
  // True if kMostNamed workers already have alarms of this kind. All further workers share one
  // alarm, so that lying workers cannot displace all other alarms.
  bool is_one_of_many = false;
  friend bool operator==(const MemberAlarm&, const MemberAlarm&) = default;
};

// Which reports of a worker the present servers know. Earlier servers have acknowledged them.
struct KnownReports {
  uint64_t server_incarnation = 0;
  Round next_round = {};
  // Last round that the worker of this name has reported in its present life. -1 means that it has
  // reported none, or that no worker of this name is alive.
  int64_t last_reported = -1;
};

// What the coordinator knows of the workers that use one certificate.
struct NameFacts {
  int64_t rounds_completed = 0;  // sum over all these workers and all their lives
  // True if the worker that registers has completed a round, in any life.
  bool has_completed_round = false;
  int64_t workers_needed = 0;  // number of workers that the job waits for
};

class Membership {
 public:
  struct Config {
    int num_shards = 1;
    absl::Duration lease = absl::Seconds(10);
    // Maximum time until a worker calls again after it was told to call again.
    absl::Duration caller_patience = absl::Seconds(6);
    std::string life_key = {};  // see CoordinatorConfig
    RegistrationLimit::Config registrations = {};
  };
  // The state that outlives the coordinator's process. WorkerConnection::Memory is stored
  // separately.
  struct Memory {
    std::string life_key;  // empty if written by a release whose lives had no secrets
    MembershipTable::Memory table;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // How an incarnation of the servers begins.
  struct Start {
    // Number of the incarnation. The incarnations of workers that begin from now on have higher
    // numbers.
    uint64_t server_incarnation = 0;
    // The checkpoint that the servers start from. Not set means that the one of the previous Start
    // stays.
    std::optional<StartingCheckpoint> beginning = std::nullopt;
    std::string empty_folder = {};  // see RestoreChoice
  };
  struct Admitted {
    messages::WorkerLife life;
    bool is_new_life = false;
    // True if the worker's previous life was of the same process.
    bool is_same_process = false;
    std::optional<MemberAlarm> alarm = std::nullopt;
  };
  // The verdict of JudgeUnconnected(), and the life that it is about.
  struct Unconnected {
    ClosedConnections::Verdict verdict = ClosedConnections::Verdict::kWait;
    messages::WorkerLife life = {};
    absl::Duration closed_for = absl::ZeroDuration();  // set with kEnd
  };

  // Number of names of one certificate that may live at the same time before any of them has
  // completed a round. Each completed round adds one name.
  static constexpr int64_t kNamesPerCertificate = 16;
  // How long the status shows a refusal.
  static constexpr absl::Duration kRefusalsShownFor = absl::Hours(1);
  // Maximum number of workers with separate alarms of one kind.
  static constexpr int kMostNamed = 3;
  // Maximum delay of a heartbeat after its interval. It covers the time on the network, and the
  // time in which the sender connects again.
  static constexpr absl::Duration kLateHeartbeat = absl::Milliseconds(500);

  explicit Membership(const Config& config);
  Memory memory() const { return {life_key_, table_.memory()}; }
  // Continues from the memory of an earlier process of the coordinator. Errors: those of
  // MembershipTable::Resume().
  absl::Status Resume(Memory memory, absl::Time now);
  void Resume(WorkerId worker, WorkerConnection::Memory memory) {
    live_workers_.reset();
    connections_[worker] = WorkerConnection(std::move(memory));
  }
  // Starts with the workers that the checkpoint lists. All of them must register again. Errors:
  // those of MembershipTable::Restore().
  absl::Status Restore(const MembershipState& state, Start start, absl::Time now);

  const MembershipTable& table() const { return table_; }
  const std::map<WorkerId, WorkerConnection>& connections() const { return connections_; }
  // Returns the connection of the worker. It is empty if no connection of the worker is known.
  const WorkerConnection& ConnectionOf(WorkerId worker) const;
  const std::string& life_key() const { return life_key_; }
  absl::Duration heartbeat_interval() const { return table_.config().lease / 3; }

  // Checks that this life has not ended. Errors: Aborted (it has ended).
  absl::Status Check(const messages::WorkerLife& life) const {
    return table_.Check(life.worker, life.incarnation);
  }
  bool IsMember(const messages::WorkerLife& life) const;
  // Returns how many workers live, and the lowest index among them.
  messages::LiveWorkers live_workers() const;
  // Returns true if `worker` is the only member. Then no worker waits for it.
  bool IsLastMember(WorkerId worker) const;
  // Returns true if the process that sends `call` already has a life under this name. Its
  // registration then continues this life.
  bool GoesOn(const messages::RegisterCall& call) const;
  // Returns the address of the other process that holds the name of `call`. See
  // Coordinator::PeerOfHolder().
  std::optional<std::string> PeerOfHolder(const messages::RegisterCall& call) const;

  // The next functions decide on a worker that registers. Call them in this order. Only the last
  // two change the state.

  // Returns true if the worker knows of an acknowledged report that these servers lack. Then all
  // disks have gone back to an older state, or the worker is wrong. Returns false if another
  // process holds the name, because the registration is then refused anyway.
  bool LacksAcknowledged(const messages::RegisterCall& call, const KnownReports& known) const;
  // Returns a final refusal if the frozen_hash of another living worker differs from that of
  // `call`.
  std::optional<MemberRefusal> CheckFrozen(const messages::RegisterCall& call) const;
  // Returns a refusal if the job has `max_members` or more members other than `name`. A worker that
  // has registered but has not joined does not count.
  std::optional<MemberRefusal> CheckRoom(absl::string_view name, int64_t max_members) const;
  // Returns the workers whose newest life used the certificate, even if that life has ended.
  // Returns none if `certificate` is empty.
  std::vector<WorkerId> WorkersOf(absl::string_view certificate) const;
  // Returns a refusal if the certificate of this caller already has as many other living names as
  // it may have. This maximum is kNamesPerCertificate or facts.workers_needed, whichever is higher,
  // plus facts.rounds_completed. A name that lives or has completed a round is never refused.
  std::optional<MemberRefusal> CheckNames(const messages::RegisterCall& call,
                                          const NameFacts& facts) const;
  // Returns the worker of this caller's name if another process holds the name and is gone. The
  // process is gone if both conditions hold:
  // - The caller says that the connection of the process is closed.
  // - The process has not renewed its lease for longer than a heartbeat may take.
  // Otherwise returns nothing.
  std::optional<WorkerId> GoneHolder(const messages::RegisterCall& call, absl::Time now) const;
  // Counts the caller among the workers with a missing report, and returns the alarm. Requires:
  // LacksAcknowledged() is true.
  MemberAlarm CountLacking(const messages::RegisterCall& call);
  // Returns the alarm kFormerStart if it applies to this caller. Only the first such caller raises
  // it.
  std::optional<MemberAlarm> TakeFormerStart(const messages::RegisterCall& call,
                                             uint64_t server_incarnation);

  // Begins a life, or continues the life that the caller has. `map_version` is the version of the
  // cluster map in the answer to the call. Errors: those of MembershipTable::Register().
  absl::StatusOr<Admitted> Register(const messages::RegisterCall& call, uint64_t map_version,
                                    absl::Time now);
  // Makes a registered worker a member. Repeats are harmless. Errors: Aborted (the life is over).
  absl::Status Join(const messages::WorkerLife& life, absl::Time now);
  // Renews the worker's lease. Errors: Aborted (this life is over; the worker must register again).
  absl::Status Renew(const messages::WorkerLife& life, absl::Time now) {
    return table_.Renew(life.worker, life.incarnation, now);
  }
  // Gives full leases to all living workers. Call after a time in which the workers could not renew
  // their leases.
  void RenewAll(absl::Time now) { table_.RenewAll(now); }
  // Counts a registration against the limit of registrations that begin a new life. Errors: those
  // of RegistrationLimit::Take().
  absl::Status TakeRegistration(absl::string_view peer, absl::Time now) {
    return registrations_.Take(peer, now);
  }

  // Ends a life because the worker wants to leave. Errors: Aborted (the life is over).
  absl::StatusOr<EndedLife> Leave(const messages::WorkerLife& life, absl::string_view reason,
                                  absl::Time now) {
    return table_.Leave(life.worker, life.incarnation, reason, now);
  }
  // Ends the life of a worker. Not set means that the worker was not alive. Requires: the table
  // knows the worker.
  std::optional<EndedLife> Drop(WorkerId worker, absl::string_view reason, absl::Time now);
  // Drops the living workers for whose names `which` returns true. Returns them ascending by ID.
  std::vector<EndedLife> DropWhere(absl::FunctionRef<bool(absl::string_view name)> which,
                                   absl::string_view reason, absl::Time now);
  // See MembershipTable::EndAll().
  std::vector<EndedLife> EndAll(absl::string_view reason, absl::Time now) {
    return table_.EndAll(reason, now);
  }
  std::vector<EndedLife> Expire(absl::Time now) { return table_.Expire(now); }
  // Forgets the connections of workers that the table no longer knows. Returns these workers.
  std::vector<WorkerId> ForgetGone();

  // Records that a call of this life came from the address `peer`.
  void OnHeard(const messages::WorkerLife& life, const std::string& peer);
  // Records a heartbeat. Returns false and records nothing if the worker does not have the present
  // map, and cannot take it from the answer to this heartbeat. `map_version` is the version of the
  // present map. Requires: the life has not ended.
  bool OnHeartbeat(const messages::HeartbeatCall& call, uint64_t map_version);
  // See ClosedConnections for this function and the next three.
  void OnConnectionEnded(const messages::WorkerLife& life, const std::string& peer, bool by_peer,
                         absl::Time now);
  void OnConnectionsAnswer(int shard, const messages::WorkerLife& life, bool are_closed) {
    closed_connections_.OnAnswer(shard, life, are_closed);
  }
  void OnGap(absl::Time now) { closed_connections_.OnGap(now); }
  bool has_closed_connections() const { return !closed_connections_.is_empty(); }
  // Returns whether the life of the member `awaited` may be ended because its connections are
  // closed. Other members wait for this member. `long_round` is the usual length of a round. 0
  // means that rounds are short.
  Unconnected JudgeUnconnected(WorkerId awaited, absl::Duration long_round, absl::Time now);

  // Notes the answer to a registration. Returns true if the answer is a final refusal that does
  // not repeat the last refusal of this name.
  bool NoteAnswer(absl::string_view name, absl::string_view peer, const absl::Status& answer,
                  absl::Time now);
  // Notes why a worker that had registered is turned away. Returns true if the refusal is final
  // and does not repeat the last refusal of this name.
  bool NoteRefusal(absl::string_view name, absl::string_view peer, const absl::Status& reason,
                   absl::Time now);
  // Notes that a worker was told to call again, and why.
  void NoteWaiting(absl::string_view name, absl::string_view peer, const absl::Status& reason,
                   absl::Time now) {
    callers_.Note(name, peer, reason, now);
  }
  // Forgets the refusals of a worker that an operator lets in again.
  void OnReadmitted(absl::string_view name) { refusals_.Forget(name); }
  std::vector<RecentRefusals::Refusal> Refused(absl::Time now) const {
    return refusals_.Shown(now);
  }
  // Returns the callers that were told to call again, because the servers are not ready or another
  // process holds the name.
  std::vector<RecentRefusals::Refusal> Callers(absl::Time now) const { return callers_.Shown(now); }

 private:
  // Returns the lowest index, from 0, that no living worker has.
  uint32_t FreeIndex() const;
  // Returns the alarm kOtherServers if it applies to this caller. Call before the worker is entered
  // into the table.
  std::optional<MemberAlarm> FindOtherServers(const messages::RegisterCall& call) const;

  MembershipTable table_;
  // Connections of all workers that have lived since this incarnation of the servers began. A
  // worker that the table no longer knows stays until ForgetGone().
  std::map<WorkerId, WorkerConnection> connections_;
  ClosedConnections closed_connections_;
  RegistrationLimit registrations_;
  RecentRefusals refusals_;
  RecentRefusals callers_;
  std::string life_key_;
  // The checkpoint that this process started from. Not set means that the process began with the
  // initial weights, or continued from a journal.
  std::optional<StartingCheckpoint> beginning_;
  std::string empty_folder_;  // Empty also after its alarm was raised.
  // Number of CountLacking() calls in this process.
  int num_lacking_reports_ = 0;
  // Number of alarms kOtherServers that workers have raised in this process.
  int num_of_other_servers_ = 0;
  // Result of the last call of live_workers(), and MembershipTable::num_life_changes() at that
  // time. Not set means that the result must be computed again.
  struct CountedWorkers {
    messages::LiveWorkers workers;
    int64_t num_life_changes = 0;
  };
  mutable std::optional<CountedWorkers> live_workers_;
  const WorkerConnection unknown_{};
};

}  // namespace lodestar::membership
