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

}  // namespace lodestar
