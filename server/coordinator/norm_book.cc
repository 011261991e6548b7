#include "server/coordinator/norm_book.h"

#include <utility>

namespace lodestar {
namespace {

// A shard is at most one round behind another, so what it has missed is of the last two.
constexpr size_t kKeptTotals = 4;

}  // namespace

bool NormBook::Add(Round round, int shard, std::vector<double> segment_sums) {
  if (totals_.contains(round)) return true;
  auto& sums = open_[round];
  sums[shard] = std::move(segment_sums);
  if (static_cast<int>(sums.size()) < num_shards_) return false;
  double total = 0.0;
  for (const auto& [index, part] : sums) {
    for (const double sum : part) total += sum;
  }
  open_.erase(open_.begin(), open_.upper_bound(round));
  totals_[round] = total;
  if (totals_.size() > kKeptTotals) totals_.erase(totals_.begin());
  return true;
}

void NormBook::Clear() {
  open_.clear();
  totals_.clear();
}

}  // namespace lodestar
