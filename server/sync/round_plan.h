// SPDX-License-Identifier: Apache-2.0

// A RoundPlan has the members that contribute to a round, and the number of samples of each. The
// plan is fixed when the round opens: if a member is lost later, the plan does not change.
#pragma once

#include <cstdint>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar::sync {

struct RosterMember {
  WorkerId worker;
  Incarnation incarnation;
  int64_t num_samples = 0;
  friend bool operator==(const RosterMember&, const RosterMember&) = default;
};

struct RoundPlan {
  Round round;
  ViewId view;
  std::vector<RosterMember> roster;  // ascending by worker
  double learning_rate = 0.0;
  friend bool operator==(const RoundPlan&, const RoundPlan&) = default;

  int64_t total_samples() const;
  // Returns the weight of a worker's contribution: `num_samples`, the number of samples that it was
  // computed on. If `num_samples` is 0 or above the number in the plan, returns the number in the
  // plan. If the plan has no samples, all weights are equal. If the worker is not in the roster,
  // returns 0.
  int64_t WeightOf(WorkerId worker, int64_t num_samples = 0) const;
  int64_t total_weight() const;
  // Returns null if the worker is not in the roster.
  const RosterMember* Find(WorkerId worker) const;
};

}  // namespace lodestar::sync
