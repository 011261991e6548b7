// SPDX-License-Identifier: Apache-2.0

// ShardCounters holds what a shard counts for its status: contributions by outcome, staleness,
// rounds and versions of its buckets.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/runtime/ids.h"
#include "server/shard/contribution.h"
#include "server/shard/shard_observer.h"

namespace lodestar::shard {

// A BucketPosition says in which round and at which version a bucket is.
struct BucketPosition {
  Round round;  // round that the bucket collects
  Version version;
  friend bool operator==(const BucketPosition&, const BucketPosition&) = default;
};

// The class is thread-safe. Its lock is a leaf.
class ShardCounters {
 public:
  explicit ShardCounters(int num_buckets);

  void CountOutcome(PushOutcome outcome);
  void CountRejected();
  // Counts a skipped contribution. The outcome is counted separately.
  void CountSkipped();
  void CountStaleness(int64_t staleness);

  // Moves a bucket from one position to another. Returns the lowest version of all buckets if that
  // rose.
  std::optional<Version> MoveBucket(const BucketPosition& from, const BucketPosition& to);
  void SetBucketPending(bool pending);
  // Must be called when a bucket gets its first weights. Returns true if no other bucket lacks
  // weights.
  bool BucketHasWeights();
  bool AllHaveWeights() const;
  Round lowest_round() const;

  // Fills the counts in `stats`.
  void FillIn(ShardStats& stats) const;

 private:
  static constexpr int kMaxStaleness = 32;

  const int num_buckets_;
  mutable absl::Mutex mutex_;
  int64_t outcomes_[3] ABSL_GUARDED_BY(mutex_) = {0, 0, 0};
  int64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t skipped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> staleness_ ABSL_GUARDED_BY(mutex_);
  std::map<Version, int> buckets_at_version_ ABSL_GUARDED_BY(mutex_);
  std::map<Round, int> buckets_in_round_ ABSL_GUARDED_BY(mutex_);
  int num_pending_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_with_weights_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lodestar::shard
