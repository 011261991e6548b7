// Who contributes to a round, with how many samples each. Fixed when the round opens; that a member
// is lost later does not change the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"

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

  int64_t total_samples() const;
  // Null if the worker is not in the roster.
  const RosterMember* Find(WorkerId worker) const;
};

}  // namespace lodestar
