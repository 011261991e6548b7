// SPDX-License-Identifier: Apache-2.0

#include "server/sync/round_plan.h"

#include <algorithm>

namespace lodestar::sync {

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

int64_t RoundPlan::WeightOf(WorkerId worker, int64_t num_samples) const {
  const RosterMember* const member = Find(worker);
  if (member == nullptr) return 0;
  if (total_samples() == 0) return 1;
  return num_samples > 0 ? std::min(num_samples, member->num_samples) : member->num_samples;
}

int64_t RoundPlan::total_weight() const {
  const int64_t samples = total_samples();
  return samples > 0 ? samples : static_cast<int64_t>(roster.size());
}

}  // namespace lodestar::sync
