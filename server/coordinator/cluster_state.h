// SPDX-License-Identifier: Apache-2.0

// All that the coordinator knows of its job, with functions that answer common questions about it.
// Plain data. Only Coordinator and its parts change it.
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

namespace lodestar::coordinator {

// The phase of the job. coordinator.h has a diagram of the transitions.
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

// Maximum time until a worker calls again after its call was answered with "not ready".
constexpr absl::Duration kCallerPatience = absl::Seconds(6);

// The comparison of the coordinator's journal with what shards and checkpoints know. It is made
// once, when all shards have attached to this process. Before the comparison is over, no worker
// gets an answer, no shard gets a command, and nothing is written into the journal.
struct StartComparison {
  bool is_over = false;
  // Set if the journal has lost records and --accept_loss does not accept that. The comparison then
  // never ends.
  std::optional<shards::JournalLoss> loss;
  // The error if the round of --accept_loss is not the round of the loss. This process then ends.
  absl::Status refusal;
  bool is_accepted = false;  // The loss is accepted: all servers go back to a checkpoint.
  bool is_resumed = false;   // The coordinator's memory was in the journal.
  std::string unfinished;    // Directory of the checkpoint that was under way.
};

struct ClusterState {
  ClusterState(CoordinatorConfig the_config, model::JobModel the_model, absl::Time now);

  // The configuration as the operator has set it. JobModel::job() has the settings in use.
  const CoordinatorConfig config;
  absl::Time started_at;
  CoordinatorPhase phase = CoordinatorPhase::kAwaitingShards;

  StartComparison comparison;
  uint64_t journal_id = 0;  // See CoordinatorRecord.
  model::JobModel model;
  shards::ShardFleet shards;
  membership::Membership membership;
  rounds::RoundScheduler rounds;
  checkpoints::CheckpointManager checkpoints;
  faults::FaultPolicy faults;
  stragglers::StragglerDetector stragglers;
  AlarmBook alarms;
  WaitLog waits;
  ending::JobEnding ending;

  // Returns true if the servers have weights and workers may call.
  bool is_ready() const;
  // Returns true if the shards have got their parts of the model. From then on, the loss of a
  // server may mean a loss of weights.
  bool has_memory() const {
    return phase == CoordinatorPhase::kLoading || is_ready() ||
           (is_comparing() && comparison.is_resumed);
  }
  bool is_comparing() const { return !comparison.is_over; }
  // Returns true if the job was stopped and not all servers serve. Workers cannot register then, so
  // they cannot learn of the end in the usual way.
  bool is_over_for_callers() const {
    return phase == CoordinatorPhase::kDone && ending.failure().ok() && ending.is_stopping() &&
           (model.map() == nullptr || !shards.all_serving());
  }
  // Returns true if the servers exit once all workers and servers know that the job is over or has
  // failed.
  bool ends() const {
    return phase == CoordinatorPhase::kFailed ||
           (phase == CoordinatorPhase::kDone && (ending.is_stopping() || config.exit_when_done));
  }
  // See Coordinator::AwaitsJournals().
  bool AwaitsJournals(WorkerId worker, Round round, bool is_patience_over) const;
  checkpoints::StandingOrders orders() const;
  void TakeOrders(checkpoints::StandingOrders orders, absl::Time now);
  // Returns true if a server is away. No round is then opened, closed or saved, because that server
  // would not get the command.
  bool is_shard_away() const { return shards.any_away(); }
  // Returns true if the job saves checkpoints. The weights of a trial of settings are not saved.
  bool saves() const { return !config.checkpoint_dir.empty() && !model.tuning().is_measuring(); }

  std::string NameOf(WorkerId worker) const;
  // Returns the names of the workers whose lives have not ended.
  std::vector<std::string> Present() const;
  // Returns the names of absent workers that may still come back to learn that the job is over.
  // They were dropped shortly before the end, or they have not called since the servers started.
  std::vector<std::string> Returning(absl::Time now) const;
  // Returns true if workers that this process does not know may still come to learn that the job is
  // over. Such workers are from a previous process that left no checkpoint with their names.
  bool awaits_strangers(absl::Time now) const {
    return model.map() != nullptr && membership.table().workers().empty() &&
           now < started_at + config.lease;
  }
  // Returns the facts about all members that the RoundScheduler needs.
  std::vector<rounds::RoundMember> RoundMembers() const;
  rounds::ClusterView View(absl::Time now) const { return rounds.View(RoundMembers(), now); }
  // These two functions return the facts that the StragglerDetector needs: about the whole job at
  // `now`, and about one worker.
  stragglers::StragglerFacts FactsOfStragglers(absl::Time now) const;
  stragglers::WorkerFacts FactsOf(WorkerId worker) const;
};

}  // namespace lodestar::coordinator
