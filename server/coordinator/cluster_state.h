// All that the coordinator knows of its job, and what its decisions and its words both ask of it.
// Plain data: only Coordinator changes it.
#pragma once

#include <cstdint>
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
#include "server/coordinator/membership/membership.h"
#include "server/coordinator/model/job_model.h"
#include "server/coordinator/rounds/round_scheduler.h"
#include "server/coordinator/shards/journal_comparison.h"
#include "server/coordinator/shards/shard_command.h"
#include "server/coordinator/shards/shard_fleet.h"
#include "server/coordinator/stragglers/straggler_detector.h"
#include "server/coordinator/wait_log.h"

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
  CoordinatorPhase phase = CoordinatorPhase::kAwaitingShards;

  StartComparison comparison;
  uint64_t journal_id = 0;  // See CoordinatorRecord.
  JobModel model;
  ShardFleet shards;
  Membership membership;
  RoundScheduler rounds;
  CheckpointManager checkpoints;
  FaultPolicy faults;
  StragglerDetector stragglers;
  AlarmBook alarms;
  WaitLog waits;
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
  // What the RoundScheduler is to know of all members.
  std::vector<RoundMember> RoundMembers() const;
  ClusterView View(absl::Time now) const { return rounds.View(RoundMembers(), now); }
  // What the StragglerDetector is to know of this moment, and of one worker.
  StragglerFacts FactsOfStragglers(absl::Time now) const;
  WorkerFacts FactsOf(WorkerId worker) const;
};

}  // namespace lodestar
