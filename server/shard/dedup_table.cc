#include "server/shard/dedup_table.h"

#include <algorithm>
#include <utility>

namespace lodestar {

void DedupTable::Restore(const std::vector<CountedWorker>& rows) {
  counted_.clear();
  for (const CountedWorker& row : rows) counted_[row.worker] = row.last;
  published_ = counted_;
}

void DedupTable::Count(WorkerId worker, const CountedContribution& contribution, int num_members,
                       IsMember is_member) {
  const bool is_new = counted_.insert_or_assign(worker, contribution).second;
  const size_t limit = kMaxEndedRows + num_members;
  if (!is_new || counted_.size() <= limit) return;
  std::vector<std::pair<Incarnation, WorkerId>> ended;
  for (const auto& [other, last] : counted_) {
    if (!is_member(other, last.incarnation)) ended.emplace_back(last.incarnation, other);
  }
  std::sort(ended.begin(), ended.end());
  for (size_t i = 0; i < ended.size() && counted_.size() > limit; ++i) {
    counted_.erase(ended[i].second);
  }
}

std::optional<CountedContribution> DedupTable::Find(WorkerId worker) const {
  const auto row = counted_.find(worker);
  return row == counted_.end() ? std::nullopt : std::optional(row->second);
}

std::vector<CountedWorker> DedupTable::Published() const {
  std::vector<CountedWorker> rows;
  for (const auto& [worker, last] : published_) rows.push_back({worker, last});
  return rows;
}

}  // namespace lodestar
