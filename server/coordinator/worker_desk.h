// What the coordinator keeps per worker beside its membership, by the part that decides on it. Pure
// data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/stragglers/worker_activity.h"
#include "server/coordinator/worker_assignment.h"
#include "server/coordinator/worker_connection.h"
#include "server/membership/membership_table.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

struct WorkerDesk {
  // What was promised to the worker and counted of it.
  struct Memory {
    WorkerConnection::Memory connection;
    WorkerAssignment::Memory assignment;
    friend bool operator==(const Memory&, const Memory&) = default;
  };

  WorkerDesk() = default;
  // The coordinator's process has ended, and this one goes on.
  WorkerDesk(Memory memory, absl::Time now)
      : connection(std::move(memory.connection)), assignment(std::move(memory.assignment), now) {}
  Memory memory() const { return {connection.memory(), assignment.memory()}; }

  // A new life. What was counted over all lives stays. Returns whether the life is of the same
  // process as the last one.
  bool BeginLife(const RegisterCall& call, absl::Time now);

  // Returns the worker's progress as policies see it. `worker`, `name` and `activity` are those of
  // this worker.
  MemberProgress Progress(WorkerId worker, const std::string& name, const WorkerActivity& activity,
                          absl::Time now) const;
  // `newest`: number of the newest round granted to any worker. -1 means none.
  WorkerSnapshot Snapshot(const WorkerRecord& record, const WorkerActivity& activity,
                          int64_t newest, absl::Time now) const;

  WorkerConnection connection;
  WorkerAssignment assignment;
};

}  // namespace lodestar
