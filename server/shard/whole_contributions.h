// SPDX-License-Identifier: Apache-2.0

// WholeContributions records which buckets of each worker's newest contribution a shard has
// answered, to report when all buckets are answered.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/ids.h"

namespace lodestar::shard {

// The class is thread-safe. Its lock is a leaf.
class WholeContributions {
 public:
  explicit WholeContributions(int num_buckets) : num_buckets_(num_buckets) {}

  // Must be called when the bucket at `position` of a worker's contribution to `round` is answered:
  // as counted, as a repeat, or as too late. Returns true if now all buckets of that contribution
  // are answered. Repeated calls change nothing. Calls for an older incarnation or an earlier round
  // than the worker's newest change nothing.
  bool Settle(WorkerId worker, Incarnation incarnation, Round round, int position) {
    absl::MutexLock lock(&mutex_);
    Newest& newest = newest_[worker];
    const std::pair told(incarnation, round);
    if (told < newest.contribution) return false;
    if (newest_.size() > kMostWorkers) ForgetOldestBut(worker);
    if (told != newest.contribution || newest.is_settled.empty()) {
      newest = {told, std::vector<bool>(num_buckets_), num_buckets_};
    }
    if (newest.is_settled[position]) return false;
    newest.is_settled[position] = true;
    return --newest.num_open == 0;
  }

 private:
  // Maximum number of workers in newest_. If there are more, the oldest is forgotten.
  static constexpr size_t kMostWorkers = 1024;

  struct Newest {
    std::pair<Incarnation, Round> contribution;
    std::vector<bool> is_settled;  // indexed by position
    int num_open = 0;
  };

  // Forgets the worker with the oldest incarnation, except `worker`. Later incarnations have higher
  // numbers.
  void ForgetOldestBut(WorkerId worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto oldest = newest_.end();
    for (auto row = newest_.begin(); row != newest_.end(); ++row) {
      if (row->first == worker) continue;
      if (oldest == newest_.end() || row->second.contribution < oldest->second.contribution) {
        oldest = row;
      }
    }
    newest_.erase(oldest);
  }

  const int num_buckets_;
  absl::Mutex mutex_;
  std::map<WorkerId, Newest> newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::shard
