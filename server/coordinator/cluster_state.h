// All that the coordinator knows of its job, and what its decisions and its words both ask of it.
// Plain data: only Coordinator changes it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/alarm_book.h"
#include "server/coordinator/checkpoints/checkpoint_manager.h"
#include "server/coordinator/coordinator_config.h"
#include "server/coordinator/ending/job_ending.h"
#include "server/coordinator/faults/fault_policy.h"
#include "server/coordinator/job_progress.h"
#include "server/coordinator/member_quota.h"
#include "server/coordinator/membership/membership.h"
#include "server/coordinator/model/job_model.h"
#include "server/coordinator/open_round.h"
#include "server/coordinator/shards/journal_comparison.h"
#include "server/coordinator/shards/shard_command.h"
#include "server/coordinator/shards/shard_fleet.h"
#include "server/coordinator/site_course.h"
#include "server/coordinator/stragglers/straggler_detector.h"
#include "server/coordinator/wait_log.h"
#include "server/coordinator/work_ledger.h"
#include "server/coordinator/worker_desk.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

// Where the coordinator is in the life of a job; the transitions are drawn in coordinator.h.
enum class CoordinatorPhase : uint8_t {
  kAwaitingShards,
  kRestoring,
  kAwaitingLayout,
  kLoading,
  kRunning,
  kEvaluating,
  kSaving,
  kDone,
  kFailed,  // the servers cannot go on: see Coordinator::outcome()
};

// Owns what ClusterFacts points to: one moment of the cluster for the policy.
struct ClusterView {
  RequiredMembers required;
  std::vector<MemberProgress> members;  // ascending by worker
  std::optional<Round> open_round;
  int reported = 0;
  std::vector<MemberProgress> missing;

  // Valid while this object is unchanged.
  ClusterFacts Facts() const {
    ClusterFacts facts;
    facts.required = required;
    facts.members = members;
    if (open_round.has_value()) facts.open_round = OpenRoundFacts{*open_round, reported, missing};
    return facts;
  }
};

// Workers whose calls are answered with "not ready" come back within this time.
constexpr absl::Duration kCallerPatience = absl::Seconds(6);

// Journals and checkpoints are compared once, when all shards have attached to this process. Before
// that no worker is answered, no shard is commanded, and nothing is written into the journal.
struct StartComparison {
  bool is_over = false;
  // The journal has gone back, and --accept_loss does not name this loss: it is never over.
  std::optional<JournalLoss> loss;
  absl::Status refusal;      // --accept_loss names another one: this process ends.
  bool is_accepted = false;  // The loss: all are to go back to a checkpoint.
  bool is_resumed = false;   // The coordinator's memory was in the journal.
  std::string unfinished;    // Directory of the checkpoint that was under way.
};

struct ClusterState {
  ClusterState(CoordinatorConfig the_config, JobModel the_model, absl::Time now);

  const CoordinatorConfig config;  // as the operator asks; the job as it is: JobModel::job()
  absl::Time started_at;
  std::unique_ptr<const ClusterPolicy> policy;
  CoordinatorPhase phase = CoordinatorPhase::kAwaitingShards;

  StartComparison comparison;
  uint64_t journal_id = 0;  // See CoordinatorRecord.
  JobModel model;
  ShardFleet shards;
  Membership membership;
  WorkLedger ledger;
  std::optional<SiteCourse> site;  // not set if this is none
  MemberQuota quota;
  CheckpointManager checkpoints;
  FaultPolicy faults;
  StragglerDetector stragglers;
  AlarmBook alarms;
  WaitLog waits;
  JobProgress progress;
  // Announced, and not on record yet as far as is known; the oldest go beyond kMaxUnrecorded.
  static constexpr size_t kMaxUnrecorded = 256;
  std::deque<RoundSummary> unrecorded;
  std::map<WorkerId, WorkerDesk> desks;
  std::map<Round, OpenRound> open;  // one at most with rosters; else one per grant that is out
  // The ledger before the newest round with a roster was opened. Not set means that it is not
  // known.
  std::optional<LedgerState> before_open_round;
  int64_t evaluation_attempt = 0;
  JobEnding ending;

  // Whether the servers have weights, and workers may call.
  bool is_ready() const;
  // Whether shards have an assignment, and with it something to lose.
  bool has_memory() const {
    return phase == CoordinatorPhase::kLoading || is_ready() ||
           (is_comparing() && comparison.is_resumed);
  }
  bool is_comparing() const { return !comparison.is_over; }
  // It was stopped, and workers cannot even join to learn that.
  bool is_over_for_callers() const {
    return phase == CoordinatorPhase::kDone && ending.failure().ok() && ending.is_stopping() &&
           (model.map() == nullptr || !shards.all_serving());
  }
  // The servers exit once all have learned that the job is over, or has failed.
  bool ends() const {
    return phase == CoordinatorPhase::kFailed ||
           (phase == CoordinatorPhase::kDone && (ending.is_stopping() || config.exit_when_done));
  }
  // See Coordinator::AwaitsJournals().
  bool AwaitsJournals(WorkerId worker, Round round, bool is_patience_over) const;
  StandingOrders orders() const;
  void TakeOrders(StandingOrders orders, absl::Time now);
  // No round is opened, closed or saved: a server cannot be told.
  bool is_shard_away() const { return shards.any_away(); }
  // What a trial of settings trains is not kept.
  bool saves() const { return !config.checkpoint_dir.empty() && !model.tuning().is_measuring(); }

  std::string NameOf(WorkerId worker) const;
  // Workers that have not left yet.
  std::vector<std::string> Present() const;
  // Returns the names of workers that may still come back to learn that the job is over: after the
  // servers started anew, or because these workers were dropped shortly before the end.
  std::vector<std::string> Returning(absl::Time now) const;
  // Whether workers of a server before this one may still come, and learn that the job is over: it
  // has left no checkpoint that names them.
  bool awaits_strangers(absl::Time now) const {
    return model.map() != nullptr && membership.table().workers().empty() &&
           now < started_at + config.lease;
  }
  // Returns true if so many members are enough for the next round.
  bool CanGoOnWith(size_t num_members, absl::Time now) const {
    return num_members > 0 && static_cast<int>(num_members) >= quota.Required(now).count;
  }
  // Whether a further round may follow.
  bool has_next_round() const {
    return site.has_value() ? site->waiting() != nullptr : !ledger.is_exhausted();
  }
  // Members that have asked for work and have none.
  std::vector<RosterMember> Waiting() const;
  // Whether members have something in hand that only a further round takes, and the job has one.
  bool OwesContribution() const;
  ClusterView View(absl::Time now) const;
  // What the StragglerDetector is to know of this moment, and of one worker.
  StragglerFacts FactsOfStragglers(absl::Time now) const;
  WorkerFacts FactsOf(WorkerId worker) const;
  // Returns the members of the round's roster that are alive and have not reported.
  std::vector<MemberProgress> MissingOf(const OpenRound& round, absl::Time now) const;
  Round committed_round() const;  // before which all rounds are over; 0 without rosters
  // Rounds that are over, and in all weights once everything is applied.
  int64_t rounds_done() const;
};

}  // namespace lodestar
