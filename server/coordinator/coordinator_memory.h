// All of a coordinator that must outlive its process so that no worker, server or operator notices
// that the process has ended: what they were promised and what they were told. A checkpoint has
// less than that (coordinator_state.h): after it, all workers begin a new life. JSON form:
// coordinator_memory_json.h.
//
// The memory lacks what comes again by itself or is for people only: which calls are held, what
// workers do at the moment and how fast, and requests for checkpoints. It also lacks servers that
// wait to stop, alarms and waits. Times are the coordinator's.
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

namespace lodestar {

// What is kept of a worker, by the part that keeps it.
struct RememberedWorker {
  WorkerConnection::Memory connection;
  WorkerAssignment::Memory assignment;
  WorkerActivity::Memory activity;
  WorkerFaults::Memory faults;
  friend bool operator==(const RememberedWorker&, const RememberedWorker&) = default;
};

struct CoordinatorMemory {
  JobModel::Memory model;  // What it is the memory of: see CheckSameJob().
  ShardFleet::Memory shards;
  JobEnding::Memory ending;
  Membership::Memory membership;
  std::map<WorkerId, RememberedWorker> desks;
  RoundScheduler::Memory rounds;
  CheckpointManager::Memory checkpoints;
  FaultPolicy::Memory faults;  // also rollbacks after the newest checkpoint
  StandingOrders orders;
};

// Whether the newest checkpoint has all of it but for the lives of workers.
bool IsAllInCheckpoint(const CoordinatorMemory& memory);
// Checks that it is the memory of this job, but for settings that only the coordinator looks at.
// Error: FailedPrecondition naming what differs.
absl::Status CheckSameJob(const CoordinatorMemory& memory, const JobSpec& job, int num_shards);
// Checks that the memory has all that other parts of it refer to. Error: DataLoss.
absl::Status CheckWhole(const CoordinatorMemory& memory);

}  // namespace lodestar
