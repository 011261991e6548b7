// SPDX-License-Identifier: Apache-2.0

// DedupTable records what one bucket has counted from each worker, so that nothing counts twice. It
// is not thread-safe: the bucket's lock guards it.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/runtime/ids.h"
#include "server/shard/shard_state.h"
#include "server/sync/bucket_policy.h"

namespace lodestar::shard {

class DedupTable {
 public:
  // Maximum number of rows of workers that are no members any more. If there are more, the rows
  // with the oldest incarnations are removed. A worker that has left does not repeat its
  // contributions for long.
  static constexpr size_t kMaxEndedRows = 64;
  using IsMember = absl::FunctionRef<bool(WorkerId, Incarnation)>;

  void Restore(const std::vector<CountedWorker>& rows);
  // Sets the row of `worker` to `contribution`. If the table has more than kMaxEndedRows +
  // num_members rows, calls `is_member` for every row. Then removes rows of workers that are no
  // members.
  void Count(WorkerId worker, const sync::CountedContribution& contribution, int num_members,
             IsMember is_member);
  std::optional<sync::CountedContribution> Find(WorkerId worker) const;

  // Must be called when a version is published. That version must include every contribution
  // counted so far.
  void MarkPublished() { unpublished_.clear(); }
  // Returns the rows as of the last published version, ascending by worker.
  std::vector<CountedWorker> Published() const;

 private:
  std::map<WorkerId, sync::CountedContribution> counted_;
  // Contributions counted since the last published version, oldest first, each with the row that it
  // replaced.
  std::vector<std::pair<WorkerId, std::optional<sync::CountedContribution>>> unpublished_;
};

}  // namespace lodestar::shard
