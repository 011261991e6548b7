// What the coordinator keeps per worker beside its membership, by the part that decides on it. Pure
// data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/cluster_messages.h"
#include "common/ids.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/worker_activity.h"
#include "server/coordinator/worker_assignment.h"
#include "server/coordinator/worker_connection.h"
#include "server/membership/membership_table.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

struct WorkerDesk {
  // What was promised to the worker and counted of it. It lacks what the worker does at the moment,
  // which the worker tells again by itself, and how fast it is.
  struct Memory {
    WorkerConnection::Memory connection;
    WorkerAssignment::Memory assignment;
    WorkerActivity::Memory activity;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  WorkerDesk() = default;
  // The coordinator's process has ended, and this one goes on.
  WorkerDesk(Memory memory, absl::Time now)
      : connection(std::move(memory.connection)),
        assignment(std::move(memory.assignment), now),
        activity(memory.activity) {}
  Memory memory() const { return {connection.memory(), assignment.memory(), activity.memory()}; }

  // A new life. What was counted over all lives stays. Returns whether the life is of the same
  // process as the last one.
  bool BeginLife(const RegisterCall& call, absl::Time now);
  void EndLife();
  void OnHeartbeat(const HeartbeatCall& call, absl::Time now);
  void Give(const Grant& grant, absl::Time now);
  // The grant held is done.
  void Complete(const RoundReport& report, const JobSpec& job, absl::Time now);

  // Returns the worker's progress as policies see it. `worker` and `name` are those of this worker.
  MemberProgress Progress(WorkerId worker, const std::string& name, absl::Time now) const;
  // `newest`: number of the newest round granted to any worker. -1 means none.
  WorkerSnapshot Snapshot(const WorkerRecord& record, int64_t newest, absl::Time now) const;

  WorkerConnection connection;
  WorkerAssignment assignment;
  WorkerActivity activity;
};

}  // namespace lodestar
