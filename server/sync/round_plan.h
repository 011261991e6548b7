// The members that contribute to a round, with how many samples each. The plan is fixed when the
// round opens: a member that is lost later does not change it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/runtime/ids.h"

namespace lodestar {

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
  // Samples stand for the weight of a contribution; a round without any samples weighs all alike.
  // `num_samples`: that the contribution was computed on, or 0 for all that the plan has for the
  // worker, which is also the most that counts. 0 if the worker is not in the roster.
  int64_t WeightOf(WorkerId worker, int64_t num_samples = 0) const;
  int64_t total_weight() const;
  // Null if the worker is not in the roster.
  const RosterMember* Find(WorkerId worker) const;
};

}  // namespace lodestar
