// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/faults/worker_faults.h"

#include <algorithm>

#include "server/coordinator/faults/divergence_policy.h"

namespace lodestar::faults {

void WorkerFaults::BeginLife(bool is_same_process) {
  if (is_same_process) return;
  memory_.times_not_finite = 0;
  memory_.not_finite_life = Incarnation();
  memory_.finite_reports_then = 0;
}

bool WorkerFaults::CountNotFinite(Incarnation incarnation, uint64_t finite_reports) {
  if (incarnation == memory_.not_finite_life) return false;
  memory_.not_finite_life = incarnation;
  if (memory_.times_not_finite == 0 || finite_reports > memory_.finite_reports_then) {
    ++memory_.times_not_finite;
  }
  memory_.finite_reports_then = finite_reports;
  return true;
}

bool WorkerFaults::CountPoisoned(Round round) {
  std::vector<Round>& rounds = memory_.poisoned_rounds;
  const auto position = std::lower_bound(rounds.begin(), rounds.end(), round);
  if (position != rounds.end() && *position == round) return false;
  rounds.insert(position, round);
  const Round newest = rounds.back();
  std::erase_if(
      rounds, [newest](Round other) { return newest - other >= DivergencePolicy::kPoisonWindow; });
  return true;
}

}  // namespace lodestar::faults
