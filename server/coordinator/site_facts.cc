#include "server/coordinator/site_facts.h"

#include "server/sync/cluster_policy.h"

namespace lodestar {

std::optional<absl::StatusOr<SiteOutcome>> OrderOutcomeOf(const ClusterState& state,
                                                          uint64_t number) {
  if (auto outcome = state.site->OutcomeOf(number); outcome.has_value()) return *outcome;
  if (!state.site->Has(number)) return absl::CancelledError("the order was withdrawn");
  if (!state.ending.failure().ok()) return state.ending.failure();
  const bool is_open = !state.open.empty() && state.site->waiting() == nullptr;
  const bool is_over = state.ending.is_stopping() || state.ending.is_work_held() || state.ends();
  if (is_open || !is_over) return std::nullopt;
  return absl::CancelledError("this site hands out no work any more");
}

std::optional<DatasetInfo> SiteDataOf(const ClusterState& state, absl::Time now) {
  if (state.phase != CoordinatorPhase::kRunning ||
      AwaitMembers(state.View(now).Facts()).action != Action::kApply) {
    return std::nullopt;
  }
  return state.ledger.SharedData();
}

absl::Status CheckBrings(const ClusterState& state, const DatasetInfo& data) {
  if (!state.site.has_value() || !data.own_partition) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "--data_partition=own is not for workers of a site: the servers upstream hand out its "
      "samples, of the data that all workers of the job have; give that data, or let this worker "
      "join the servers upstream");
}

}  // namespace lodestar
