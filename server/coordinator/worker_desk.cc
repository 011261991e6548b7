#include "server/coordinator/worker_desk.h"

namespace lodestar {

bool WorkerDesk::BeginLife(const RegisterCall& call, absl::Time now) {
  const bool is_same_process = connection.BeginLife(call);
  assignment.BeginLife(call, is_same_process, now);
  activity.BeginLife(is_same_process);
  return is_same_process;
}

void WorkerDesk::EndLife() {
  assignment.EndLife();
  activity.EndLife();
}

void WorkerDesk::OnHeartbeat(const HeartbeatCall& call, absl::Time now) {
  connection.OnHeartbeat(call);
  activity.OnHeartbeat(call, now);
}

void WorkerDesk::Give(const Grant& grant, absl::Time now) {
  assignment.Give(grant, now);
  activity.OnGrant();
}

void WorkerDesk::Complete(const RoundReport& report, const JobSpec& job, absl::Time now) {
  activity.OnReport(assignment.grant(), now - assignment.given_at());
  assignment.Complete(report, job, now);
}

MemberProgress WorkerDesk::Progress(WorkerId worker, const std::string& name,
                                    absl::Time now) const {
  const bool is_working = assignment.grant().has_value();
  return {.worker = worker,
          .name = name,
          .rounds_completed = assignment.progress(),
          .waiting = assignment.is_waiting(),
          .working = is_working,
          .usual_round = activity.UsualRound(assignment.grant()),
          .since = now - (is_working ? assignment.given_at() : assignment.idle_since())};
}

WorkerSnapshot WorkerDesk::Snapshot(const WorkerRecord& record, int64_t newest,
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
  activity.Describe(now, snapshot);
  assignment.DescribeWork(newest, now, snapshot);
  return snapshot;
}

}  // namespace lodestar
