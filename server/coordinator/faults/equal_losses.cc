// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/faults/equal_losses.h"

#include <algorithm>
#include <cstddef>

namespace lodestar::faults {
namespace {

constexpr size_t kRoundsKept = 2;

}  // namespace

std::optional<WorkerId> EqualLosses::OnReport(WorkerId worker, Round round, double loss) {
  History& history = histories_[worker];
  if (history.num_losses > 0 && round != history.newest + 1) history.num_losses = 0;
  std::shift_right(history.losses.begin(), history.losses.end(), 1);
  history.losses.front() = loss;
  history.num_losses = std::min(history.num_losses + 1, kRounds);
  history.newest = round;
  if (history.num_losses < kRounds) return std::nullopt;
  Losses sorted = history.losses;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return std::nullopt;

  const auto [first, is_new] = firsts_[round].try_emplace(history.losses, worker);
  const WorkerId other = first->second;
  if (firsts_.size() > kRoundsKept) firsts_.erase(firsts_.begin());
  if (is_new || other == worker) return std::nullopt;
  return other;
}

void EqualLosses::Forget(WorkerId worker) {
  histories_.erase(worker);
  for (auto& [round, firsts] : firsts_) {
    std::erase_if(firsts, [worker](const auto& entry) { return entry.second == worker; });
  }
}

void EqualLosses::ForgetAll() {
  histories_.clear();
  firsts_.clear();
}

}  // namespace lodestar::faults
