// What a worker was given, has done and does, as policies and people see it. Pure data.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/messages/cluster_messages.h"
#include "common/runtime/ids.h"
#include "server/coordinator/cluster_snapshot.h"
#include "server/coordinator/membership/worker_connection.h"
#include "server/coordinator/stragglers/worker_activity.h"
#include "server/coordinator/worker_assignment.h"
#include "server/membership/membership_table.h"
#include "server/sync/cluster_policy.h"

namespace lodestar {

struct WorkerDesk {
  // Returns the worker's progress as policies see it. `worker`, `name` and `activity` are those of
  // this worker, and so are `record` and `connection` below.
  MemberProgress Progress(WorkerId worker, const std::string& name, const WorkerActivity& activity,
                          absl::Time now) const;
  // `newest`: number of the newest round granted to any worker. -1 means none.
  WorkerSnapshot Snapshot(const WorkerRecord& record, const WorkerConnection& connection,
                          const WorkerActivity& activity, int64_t newest, absl::Time now) const;

  WorkerAssignment assignment;
};

}  // namespace lodestar
