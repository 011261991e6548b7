#include "server/coordinator/acknowledged_report.h"

#include "absl/strings/str_cat.h"

namespace lodestar {

bool LacksAcknowledged(const ClusterState& state, const RegisterCall& call) {
  if (!call.process.acknowledged.has_value()) return false;
  const AcknowledgedReport& report = *call.process.acknowledged;
  const WorkerRecord* const record = state.membership.FindByName(call.name);
  const bool is_held = record != nullptr && record->is_alive();
  if (is_held && record->instance_id != call.instance_id) return false;
  if (report.server_incarnation != state.server_incarnation) {
    return report.server_incarnation > state.server_incarnation;
  }
  // The last evaluation has the number of the round that would come next.
  if (report.round > state.ledger.next_round()) return true;
  if (report.life > state.membership.last_incarnation()) return true;
  return is_held && record->incarnation == report.life &&
         state.desks.at(record->id).memory().last_reported < report.round.value();
}

std::string LacksReportAlarm(const ClusterState& state, absl::string_view name, Round round) {
  constexpr int kMostNamed = 3;
  if (state.num_lacking_reports > kMostNamed) {
    return "more workers say that rounds were acknowledged which these servers do not know of";
  }
  return absl::StrCat(
      "worker '", name, "' says that its round ", round.value(),
      " was acknowledged, and these servers do not know of that: they are at round ",
      state.ledger.next_round().value(),
      ". Unless the worker errs, all their disks have gone back to an older state, "
      "and what came after that is lost; the worker begins anew");
}

absl::Status LacksReportStatus(const ClusterState& state, Round round) {
  return absl::AbortedError(absl::StrCat(
      "the servers are at round ", state.ledger.next_round().value(), " and do not know of round ",
      round.value(), ", which was acknowledged to this worker"));
}

}  // namespace lodestar
