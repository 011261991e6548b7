// SPDX-License-Identifier: Apache-2.0

#include "server/shard/dedup_table.h"

#include <algorithm>
#include <utility>

namespace lodestar::shard {

void DedupTable::Restore(const std::vector<CountedWorker>& rows) {
  counted_.clear();
  for (const CountedWorker& row : rows) counted_[row.worker] = row.last;
  unpublished_.clear();
}

void DedupTable::Count(WorkerId worker, const sync::CountedContribution& contribution,
                       int num_members, IsMember is_member) {
  const auto [row, is_new] = counted_.try_emplace(worker, contribution);
  unpublished_.emplace_back(worker, is_new ? std::nullopt : std::optional(row->second));
  row->second = contribution;
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

std::optional<sync::CountedContribution> DedupTable::Find(WorkerId worker) const {
  const auto row = counted_.find(worker);
  return row == counted_.end() ? std::nullopt : std::optional(row->second);
}

std::vector<CountedWorker> DedupTable::Published() const {
  std::map<WorkerId, sync::CountedContribution> published = counted_;
  for (auto entry = unpublished_.rbegin(); entry != unpublished_.rend(); ++entry) {
    const auto& [worker, replaced] = *entry;
    if (replaced.has_value()) {
      published[worker] = *replaced;
    } else {
      published.erase(worker);
    }
  }
  std::vector<CountedWorker> rows;
  for (const auto& [worker, last] : published) rows.push_back({worker, last});
  return rows;
}

}  // namespace lodestar::shard
