// SPDX-License-Identifier: Apache-2.0

// All that a new coordinator process needs so that no worker, server or operator notices that the
// previous process has ended. A checkpoint has less (coordinator_state.h): after a restart from a
// checkpoint, all workers begin a new life. JSON form: coordinator_memory_json.h.
//
// The memory lacks facts that come again by themselves or are only shown to operators:
// - calls that are held, and requests for checkpoints;
// - what workers do at the moment, and how fast;
// - servers that wait to stop;
// - alarms, and the WaitLog.
//
// Times are those of the coordinator's clock.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/job/job_spec.h"
#include "common/runtime/ids.h"
#include "server/coordinator/checkpoints/checkpoint_manager.h"
#include "server/coordinator/checkpoints/coordinator_state.h"
#include "server/coordinator/ending/job_ending.h"
#include "server/coordinator/faults/fault_policy.h"
#include "server/coordinator/faults/worker_faults.h"
#include "server/coordinator/membership/membership.h"
#include "server/coordinator/membership/worker_connection.h"
#include "server/coordinator/model/job_model.h"
#include "server/coordinator/rounds/round_scheduler.h"
#include "server/coordinator/rounds/worker_assignment.h"
#include "server/coordinator/shards/shard_fleet.h"
#include "server/coordinator/stragglers/worker_activity.h"

namespace lodestar::coordinator {

// The memory of one worker. Each part of the coordinator that remembers something about workers has
// one field.
struct RememberedWorker {
  membership::WorkerConnection::Memory connection;
  rounds::WorkerAssignment::Memory assignment;
  stragglers::WorkerActivity::Memory activity;
  faults::WorkerFaults::Memory faults;
  friend bool operator==(const RememberedWorker&, const RememberedWorker&) = default;
};

struct CoordinatorMemory {
  model::JobModel::Memory model;  // The job that this is the memory of: see CheckSameJob().
  shards::ShardFleet::Memory shards;
  ending::JobEnding::Memory ending;
  membership::Membership::Memory membership;
  std::map<WorkerId, RememberedWorker> desks;
  rounds::RoundScheduler::Memory rounds;
  checkpoints::CheckpointManager::Memory checkpoints;
  faults::FaultPolicy::Memory faults;  // includes rollbacks after the newest checkpoint
  checkpoints::StandingOrders orders;
};

// Returns true if the newest checkpoint has everything in `memory` except the lives of workers.
bool IsAllInCheckpoint(const CoordinatorMemory& memory);
// Checks that `memory` is of this job: the number of shards, the model and the settings are the
// same. Settings that only the coordinator uses may differ. Error: FailedPrecondition (names the
// differences).
absl::Status CheckSameJob(const CoordinatorMemory& memory, const job::JobSpec& job, int num_shards);
// Checks that the parts of the memory fit together: if a part refers to something, such as a
// worker, the memory has it. Error: DataLoss.
absl::Status CheckWhole(const CoordinatorMemory& memory);

}  // namespace lodestar::coordinator
