#include "server/shard/shard_counters.h"

#include <algorithm>

namespace lodestar {

ShardCounters::ShardCounters(int num_buckets)
    : num_buckets_(num_buckets), staleness_(kMaxStaleness + 1, 0) {
  buckets_at_[Version(0)] = num_buckets;
}

void ShardCounters::CountOutcome(PushOutcome outcome) {
  absl::MutexLock lock(&mutex_);
  ++outcomes_[static_cast<int>(outcome)];
}

void ShardCounters::CountRejected() {
  absl::MutexLock lock(&mutex_);
  ++rejected_;
}

void ShardCounters::CountStaleness(int64_t staleness) {
  absl::MutexLock lock(&mutex_);
  ++staleness_[std::clamp<int64_t>(staleness, 0, kMaxStaleness)];
}

std::optional<Version> ShardCounters::MoveBucket(Version from, Version to) {
  absl::MutexLock lock(&mutex_);
  const Version lowest_before = buckets_at_.begin()->first;
  if (--buckets_at_[from] == 0) buckets_at_.erase(from);
  ++buckets_at_[to];
  const Version lowest = buckets_at_.begin()->first;
  if (lowest <= lowest_before) return std::nullopt;
  return lowest;
}

void ShardCounters::SetBucketPending(bool pending) {
  absl::MutexLock lock(&mutex_);
  num_pending_ += pending ? 1 : -1;
}

bool ShardCounters::BucketHasWeights() {
  absl::MutexLock lock(&mutex_);
  return ++num_with_weights_ == num_buckets_;
}

bool ShardCounters::AllHaveWeights() const {
  absl::MutexLock lock(&mutex_);
  return num_with_weights_ == num_buckets_;
}

Version ShardCounters::lowest_version() const {
  absl::MutexLock lock(&mutex_);
  return buckets_at_.begin()->first;
}

void ShardCounters::FillIn(ShardStats& stats) const {
  absl::MutexLock lock(&mutex_);
  stats.version = buckets_at_.begin()->first;
  stats.newest_version = buckets_at_.rbegin()->first;
  stats.pending_buckets = num_pending_;
  stats.contributions_counted = outcomes_[static_cast<int>(PushOutcome::kCounted)];
  stats.contributions_duplicate = outcomes_[static_cast<int>(PushOutcome::kDuplicate)];
  stats.contributions_late = outcomes_[static_cast<int>(PushOutcome::kLate)];
  stats.contributions_rejected = rejected_;
  stats.staleness_histogram = staleness_;
}

}  // namespace lodestar
