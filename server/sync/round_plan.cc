#include "server/sync/round_plan.h"

#include <algorithm>

namespace lodestar {

int64_t RoundPlan::total_samples() const {
  int64_t total = 0;
  for (const RosterMember& member : roster) total += member.num_samples;
  return total;
}

const RosterMember* RoundPlan::Find(WorkerId worker) const {
  auto it = std::lower_bound(
      roster.begin(), roster.end(), worker,
      [](const RosterMember& member, WorkerId wanted) { return member.worker < wanted; });
  return it != roster.end() && it->worker == worker ? &*it : nullptr;
}

int64_t RoundPlan::WeightOf(WorkerId worker) const {
  const RosterMember* const member = Find(worker);
  if (member == nullptr) return 0;
  return total_samples() > 0 ? member->num_samples : 1;
}

int64_t RoundPlan::total_weight() const {
  const int64_t samples = total_samples();
  return samples > 0 ? samples : static_cast<int64_t>(roster.size());
}

}  // namespace lodestar
