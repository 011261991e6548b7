#include "server/coordinator/worker_desk.h"

namespace lodestar {

MemberProgress WorkerDesk::Progress(WorkerId worker, const std::string& name,
                                    const WorkerActivity& activity, absl::Time now) const {
  const bool is_working = assignment.grant().has_value();
  return {.worker = worker,
          .name = name,
          .rounds_completed = assignment.progress(),
          .waiting = assignment.is_waiting(),
          .working = is_working,
          .usual_round = activity.UsualRound(assignment.grant()),
          .since = now - (is_working ? assignment.given_at() : assignment.idle_since())};
}

WorkerSnapshot WorkerDesk::Snapshot(const WorkerRecord& record, const WorkerConnection& connection,
                                    const WorkerActivity& activity, int64_t newest,
                                    absl::Time now) const {
  WorkerSnapshot snapshot;
  snapshot.name = record.name;
  snapshot.worker = record.id;
  snapshot.incarnation = record.incarnation;
  snapshot.state = std::string(WorkerStateName(record.state));
  snapshot.device = connection.memory().device;
  snapshot.peer = connection.peer();
  snapshot.path = connection.path();
  assignment.DescribeHistory(snapshot);
  if (!record.is_alive()) {
    snapshot.reason = record.end_reason;
    snapshot.ended_age = now - record.ended_at;
    return snapshot;
  }
  snapshot.lease_age = now - record.renewed_at;
  snapshot.activity = activity.activity();
  snapshot.push_bytes_per_second = activity.push_bytes_per_second(now);
  snapshot.pull_bytes_per_second = activity.pull_bytes_per_second(now);
  assignment.DescribeWork(newest, now, snapshot);
  return snapshot;
}

}  // namespace lodestar
