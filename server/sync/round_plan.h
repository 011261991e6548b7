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
  // Returns the weight of a worker's contribution: its number of samples. In a round without any
  // samples all weights are equal. `num_samples` is the number that the contribution was computed
  // on; 0 means the number in the plan, which is also the maximum. Returns 0 if the worker is not
  // in the roster.
  int64_t WeightOf(WorkerId worker, int64_t num_samples = 0) const;
  int64_t total_weight() const;
  // Returns null if the worker is not in the roster.
  const RosterMember* Find(WorkerId worker) const;
};

}  // namespace lodestar::sync
