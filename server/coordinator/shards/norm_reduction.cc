// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/shards/norm_reduction.h"

#include <utility>

namespace lodestar::shards {
namespace {

// Number of rounds whose totals are stored. A shard needs at most the last two totals, because it
// is at most one round behind the others.
constexpr size_t kKeptTotals = 4;

}  // namespace

bool NormReduction::Add(Round round, int shard, std::vector<double> segment_sums) {
  if (memory_.totals.contains(round)) return true;
  auto& sums = memory_.open[round];
  sums[shard] = std::move(segment_sums);
  if (static_cast<int>(sums.size()) < num_shards_) return false;
  double total = 0.0;
  for (const auto& [index, part] : sums) {
    for (const double sum : part) total += sum;
  }
  memory_.open.erase(memory_.open.begin(), memory_.open.upper_bound(round));
  memory_.totals[round] = total;
  if (memory_.totals.size() > kKeptTotals) memory_.totals.erase(memory_.totals.begin());
  return true;
}

void NormReduction::Clear() {
  memory_.open.clear();
  memory_.totals.clear();
}

}  // namespace lodestar::shards
