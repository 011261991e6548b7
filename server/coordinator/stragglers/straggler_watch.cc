// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/stragglers/straggler_watch.h"

#include <algorithm>

namespace lodestar::stragglers {

StragglerWatch::Straggler StragglerWatch::OnRound(absl::Span<const Member> members) {
  const auto is_slower = [](const Member& a, const Member& b) { return a.speed < b.speed; };
  std::vector<Member> sorted(members.begin(), members.end());
  std::sort(sorted.begin(), sorted.end(), is_slower);
  if (sorted.size() < 2 || sorted.front().speed <= 0.0) {
    num_rounds_ = 0;
    return {};
  }
  const Member& slowest = sorted.front();
  const size_t num_others = sorted.size() - 1;
  const double usual = sorted[1 + (num_others - 1) / 2].speed;  // median; the lower one of two
  if (slowest.speed > kShare * usual) {
    num_rounds_ = 0;
    return {};
  }
  num_rounds_ = slowest.name == slowest_ ? num_rounds_ + 1 : 1;
  slowest_ = slowest.name;
  if (num_rounds_ < kRounds || !told_.insert(slowest.name).second) return {};
  return {slowest.name, slowest.speed, usual};
}

}  // namespace lodestar::stragglers
