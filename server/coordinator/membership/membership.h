// The workers of a job: which names live, which processes have them and from where these call,
// which callers were turned away, and what callers tell of servers that this process does not know.
// Membership decides which workers may come in, as far as that concerns members alone. The caller
// passes facts in, and words and carries out the verdicts. Pure: no lock, clock or thread.
//
// A worker's connection is remembered as long as the worker, and longer until ForgetGone(), for
// those that look at lives which have just ended.
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

namespace lodestar {

// The checkpoint that this process began from.
struct StartingCheckpoint {
  uint64_t saved_by = 0;            // the server incarnation that has written the checkpoint
  uint64_t server_incarnation = 0;  // the first one of this process
  int64_t next_round = 0;           // in the checkpoint
};

// Why a worker may not come in at present.
struct MemberRefusal {
  enum class Kind : uint8_t {
    kNoRoom,        // A round takes contributions of no more members.
    kTooManyNames,  // The certificate `subject` has as many names as it may have.
    kOtherFrozen,   // The worker `subject` lives, and its frozen weights are others.
  };
  Kind kind = Kind::kNoRoom;
  std::string subject = {};
  int64_t present = 0;           // Other members, or living names of the certificate.
  int64_t allowed = 0;           // so many of them
  int64_t rounds_completed = 0;  // by the names of the certificate
  friend bool operator==(const MemberRefusal&, const MemberRefusal&) = default;
};

// What operators are to be told of a worker that registers.
struct MemberAlarm {
  enum class Kind : uint8_t {
    // The worker has contributed to a job whose servers these are not, and these have found their
    // checkpoint folder `folder` empty: it may be the wrong one.
    kFormerStart,
    // The worker has contributed to servers that this run does not go on from, as far as the
    // checkpoint can tell. The worker may belong to another job at the same address.
    kOtherServers,
    kLacksReport,  // The servers lack a report of the worker that was acknowledged.
  };
  Kind kind = Kind::kFormerStart;
  std::string worker = {};
  Round round = {};  // that the worker has contributed to
  std::string folder = {};
  // A few others had alarms of their own. This alarm is the same for all, so that liars cannot
  // drive all other alarms out.
  bool is_one_of_many = false;
  friend bool operator==(const MemberAlarm&, const MemberAlarm&) = default;
};

// What the servers know when a worker registers.
struct KnownReports {
  uint64_t server_incarnation = 0;
  Round next_round = {};
  // The last that the worker of this name has reported in its life. -1 means none, or no life.
  int64_t last_reported = -1;
};

// What the coordinator knows of the workers of a certificate.
struct NameFacts {
  int64_t rounds_completed = 0;      // by all of them, over all their lives
  bool has_completed_round = false;  // the one that registers
  int64_t workers_needed = 0;        // that the job waits for
};

class Membership {
 public:
  struct Config {
    int num_shards = 1;
    absl::Duration lease = absl::Seconds(10);
    // Workers that are to call again do so within this time.
    absl::Duration caller_patience = absl::Seconds(6);
    std::string life_key = {};  // see CoordinatorConfig
    RegistrationLimit::Config registrations = {};
  };
  // What outlives the coordinator's process, beside the memory of each connection.
  struct Memory {
    std::string life_key;  // empty if written by a release whose lives had no secrets
    MembershipTable::Memory table;
    friend bool operator==(const Memory&, const Memory&) = default;
  };
  // How the servers begin an incarnation.
  struct Start {
    uint64_t server_incarnation = 0;  // All incarnations of workers lie above it.
    // Not set means that what it was stays.
    std::optional<StartingCheckpoint> beginning = std::nullopt;
    std::string empty_folder = {};  // see RestoreChoice
  };
  struct Admitted {
    WorkerLife life;
    bool is_new_life = false;
    bool is_same_process = false;  // The process of the worker's last life begins another one.
    std::optional<MemberAlarm> alarm = std::nullopt;
  };
  // What becomes of the one life that others wait for.
  struct Unconnected {
    ClosedConnections::Verdict verdict = ClosedConnections::Verdict::kWait;
    WorkerLife life = {};
    absl::Duration closed_for = absl::ZeroDuration();  // of kEnd
  };

  // Number of names of one certificate that may live at the same time before any of them has
  // completed a round. Each completed round adds one.
  static constexpr int64_t kNamesPerCertificate = 16;
  // How long the status shows a refusal.
  static constexpr absl::Duration kRefusalsShownFor = absl::Hours(1);
  // So many workers have alarms of their own about one kind of trouble.
  static constexpr int kMostNamed = 3;
  // How much later than its interval a heartbeat may come: the time of its way, and until its
  // sender has another connection.
  static constexpr absl::Duration kLateHeartbeat = absl::Milliseconds(500);

  explicit Membership(const Config& config);
  Memory memory() const { return {life_key_, table_.memory()}; }
  // Errors: those of MembershipTable::Resume().
  absl::Status Resume(Memory memory, absl::Time now);
  void Resume(WorkerId worker, WorkerConnection::Memory memory) {
    connections_[worker] = WorkerConnection(std::move(memory));
  }
  // All workers must register again. Errors: those of MembershipTable::Restore().
  absl::Status Restore(const MembershipState& state, Start start, absl::Time now);

  const MembershipTable& table() const { return table_; }
  const std::map<WorkerId, WorkerConnection>& connections() const { return connections_; }
  // Returns an empty connection for a worker of which none is known.
  const WorkerConnection& ConnectionOf(WorkerId worker) const;
  const std::string& life_key() const { return life_key_; }
  absl::Duration heartbeat_interval() const { return table_.config().lease / 3; }

  // Ok if this life goes on. Errors: Aborted.
  absl::Status Check(const WorkerLife& life) const {
    return table_.Check(life.worker, life.incarnation);
  }
  bool IsMember(const WorkerLife& life) const;
  // Returns true if no other member lives. No worker waits for the last member.
  bool IsLastMember(WorkerId worker) const;
  // Returns whether a process that registers so goes on with a life that it has.
  bool GoesOn(const RegisterCall& call) const;
  // See Coordinator::PeerOfHolder().
  std::optional<std::string> PeerOfHolder(const RegisterCall& call) const;

  // Verdicts on a worker that registers, in this order. All but the last two change nothing.

  // Returns true if the worker knows of a report that was acknowledged and that these servers lack.
  // A coordinator acknowledges only what its journal has, and without a journal each process is
  // another life of the servers. So all disks have gone back to an older state, or the worker errs.
  // Returns false if another process holds the name, which is refused for that.
  bool LacksAcknowledged(const RegisterCall& call, const KnownReports& known) const;
  // Returns a refusal for good if another living worker has told another frozen_hash.
  std::optional<MemberRefusal> CheckFrozen(const RegisterCall& call) const;
  // Returns a refusal if there are as many members beside `name` as may be. A worker that has
  // registered and not joined takes no room.
  std::optional<MemberRefusal> CheckRoom(absl::string_view name, int64_t max_members) const;
  // Returns the workers whose life, or last life, was of the certificate. Empty means no
  // certificate, and has none.
  std::vector<WorkerId> WorkersOf(absl::string_view certificate) const;
  // Returns a refusal if the certificate of this caller may not have one more name in the job. A
  // job that waits for more workers allows as many names as it waits for. A name that has completed
  // a round is always let in.
  std::optional<MemberRefusal> CheckNames(const RegisterCall& call, const NameFacts& facts) const;
  // Returns the other process that holds the name of this caller, if the caller says that its
  // connection is closed, and nothing was heard of it for longer than a heartbeat takes.
  std::optional<WorkerId> GoneHolder(const RegisterCall& call, absl::Time now) const;
  // Counts the report of this caller that LacksAcknowledged(), and returns the alarm.
  MemberAlarm CountLacking(const RegisterCall& call);
  // Returns kFormerStart, once at most.
  std::optional<MemberAlarm> TakeFormerStart(const RegisterCall& call, uint64_t server_incarnation);

  // Begins a life, or goes on with it. `map_version`: of the map that the call is answered with.
  // Errors: those of MembershipTable::Register().
  absl::StatusOr<Admitted> Register(const RegisterCall& call, uint64_t map_version, absl::Time now);
  // Repeats are harmless. Errors: Aborted.
  absl::Status Join(const WorkerLife& life, absl::Time now);
  // Errors: Aborted if this life is over: register again.
  absl::Status Renew(const WorkerLife& life, absl::Time now) {
    return table_.Renew(life.worker, life.incarnation, now);
  }
  // Gives whole leases to all that live: they could not renew them.
  void RenewAll(absl::Time now) { table_.RenewAll(now); }
  // Counts a registration of a life that does not go on. Errors: those of
  // RegistrationLimit::Take().
  absl::Status TakeRegistration(absl::string_view peer, absl::Time now) {
    return registrations_.Take(peer, now);
  }

  // Lives end. By the worker's own wish. Errors: Aborted.
  absl::StatusOr<EndedLife> Leave(const WorkerLife& life, absl::string_view reason,
                                  absl::Time now) {
    return table_.Leave(life.worker, life.incarnation, reason, now);
  }
  // Whatever the worker wishes. Not set means that it did not live. Requires: the table knows it.
  std::optional<EndedLife> Drop(WorkerId worker, absl::string_view reason, absl::Time now);
  // Drops those that live and whose names `which` says, ascending by ID.
  std::vector<EndedLife> DropWhere(absl::FunctionRef<bool(absl::string_view name)> which,
                                   absl::string_view reason, absl::Time now);
  // See MembershipTable.
  std::vector<EndedLife> EndAll(absl::string_view reason, absl::Time now) {
    return table_.EndAll(reason, now);
  }
  std::vector<EndedLife> Expire(absl::Time now) { return table_.Expire(now); }
  // Forgets the connections of workers that the table does not know any more, and returns them.
  std::vector<WorkerId> ForgetGone();

  // Connections. A call of this life has come from there.
  void OnHeard(const WorkerLife& life, const std::string& peer);
  // Returns false if the worker does not know where the servers are, and cannot be told.
  // `map_version`: of the map as it is now. Requires: the life goes on.
  bool OnHeartbeat(const HeartbeatCall& call, uint64_t map_version);
  // See ClosedConnections.
  void OnConnectionEnded(const WorkerLife& life, const std::string& peer, bool by_peer,
                         absl::Time now);
  void OnConnectionsAnswer(int shard, const WorkerLife& life, bool are_closed) {
    closed_connections_.OnAnswer(shard, life, are_closed);
  }
  void OnGap(absl::Time now) { closed_connections_.OnGap(now); }
  bool has_closed_connections() const { return !closed_connections_.is_empty(); }
  // `awaited`: the one member that others wait for. `long_round`: how long a round usually takes.
  // 0 means that rounds are short.
  Unconnected JudgeUnconnected(WorkerId awaited, absl::Duration long_round, absl::Time now);

  // Workers that were turned away. Notes how a registration was answered. Returns true if the
  // worker is turned away for good, and for another reason than before.
  bool NoteAnswer(absl::string_view name, absl::string_view peer, const absl::Status& answer,
                  absl::Time now);
  // The same for a worker that is turned away after it has registered.
  bool NoteRefusal(absl::string_view name, absl::string_view peer, const absl::Status& reason,
                   absl::Time now);
  // A worker is to call again.
  void NoteWaiting(absl::string_view name, absl::string_view peer, const absl::Status& reason,
                   absl::Time now) {
    callers_.Note(name, peer, reason, now);
  }
  // An operator lets the worker in again.
  void OnReadmitted(absl::string_view name) { refusals_.Forget(name); }
  std::vector<RecentRefusals::Refusal> Refused(absl::Time now) const {
    return refusals_.Shown(now);
  }
  // Returns the callers that the servers are not ready for, or whose name is held. They call again.
  std::vector<RecentRefusals::Refusal> Callers(absl::Time now) const { return callers_.Shown(now); }

 private:
  // Returns kOtherServers. Call before the worker is entered into the table.
  std::optional<MemberAlarm> FindOtherServers(const RegisterCall& call) const;

  MembershipTable table_;
  // Has all workers that have lived since the servers began their incarnation, as long as the table
  // knows them.
  std::map<WorkerId, WorkerConnection> connections_;
  ClosedConnections closed_connections_;
  RegistrationLimit registrations_;
  RecentRefusals refusals_;
  RecentRefusals callers_;
  std::string life_key_;
  // Not set if the process began with the first weights, or went on from a journal.
  std::optional<StartingCheckpoint> beginning_;
  std::string empty_folder_;  // It is also empty once the alarm of it was raised.
  // How many workers have told this process of an acknowledged report that it lacks.
  int num_lacking_reports_ = 0;
  // How many workers of other servers have registered with this process.
  int num_of_other_servers_ = 0;
  const WorkerConnection unknown_{};
};

}  // namespace lodestar
