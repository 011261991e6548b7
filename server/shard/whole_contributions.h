// Counts the buckets of each worker's newest contribution to a shard, to tell when all of it is
// there.
#pragma once

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"

namespace lodestar {

// Thread-safe. Its lock is a leaf.
class WholeContributions {
 public:
  explicit WholeContributions(int num_buckets) : num_buckets_(num_buckets) {}

  // One more bucket of the worker's contribution to `round` is acknowledged; each is told of once.
  // True for the last of them. Those of an earlier life or round than the worker's newest are not
  // counted.
  bool Count(WorkerId worker, Incarnation incarnation, Round round) {
    absl::MutexLock lock(&mutex_);
    Newest& newest = newest_[worker];
    const std::pair told(incarnation, round);
    if (told < newest.contribution) return false;
    if (told != newest.contribution) newest = {told, 0};
    return ++newest.num_buckets == num_buckets_;
  }

 private:
  struct Newest {
    std::pair<Incarnation, Round> contribution;
    int num_buckets = 0;
  };

  const int num_buckets_;
  absl::Mutex mutex_;
  std::map<WorkerId, Newest> newest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar
