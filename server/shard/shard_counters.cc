// SPDX-License-Identifier: Apache-2.0

#include "server/shard/shard_counters.h"

#include <algorithm>

namespace lodestar::shard {
namespace {

template <typename Place>
void Move(std::map<Place, int>& buckets_at, Place from, Place to) {
  if (from == to) return;
  if (--buckets_at[from] == 0) buckets_at.erase(from);
  ++buckets_at[to];
}

}  // namespace

ShardCounters::ShardCounters(int num_buckets)
    : num_buckets_(num_buckets), staleness_(kMaxStaleness + 1, 0) {
  buckets_at_version_[Version(0)] = num_buckets;
  buckets_in_round_[Round(0)] = num_buckets;
}

void ShardCounters::CountOutcome(PushOutcome outcome) {
  absl::MutexLock lock(&mutex_);
  ++outcomes_[static_cast<int>(outcome)];
}

void ShardCounters::CountRejected() {
  absl::MutexLock lock(&mutex_);
  ++rejected_;
}

void ShardCounters::CountSkipped() {
  absl::MutexLock lock(&mutex_);
  ++skipped_;
}

void ShardCounters::CountStaleness(int64_t staleness) {
  absl::MutexLock lock(&mutex_);
  ++staleness_[std::clamp<int64_t>(staleness, 0, kMaxStaleness)];
}

std::optional<Version> ShardCounters::MoveBucket(const BucketPosition& from,
                                                 const BucketPosition& to) {
  absl::MutexLock lock(&mutex_);
  const Version lowest_before = buckets_at_version_.begin()->first;
  Move(buckets_in_round_, from.round, to.round);
  Move(buckets_at_version_, from.version, to.version);
  const Version lowest = buckets_at_version_.begin()->first;
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

Round ShardCounters::lowest_round() const {
  absl::MutexLock lock(&mutex_);
  return buckets_in_round_.begin()->first;
}

void ShardCounters::FillIn(ShardStats& stats) const {
  absl::MutexLock lock(&mutex_);
  stats.version = buckets_at_version_.begin()->first;
  stats.newest_version = buckets_at_version_.rbegin()->first;
  stats.open_round = buckets_in_round_.begin()->first;
  stats.pending_buckets = num_pending_;
  stats.contributions_counted = outcomes_[static_cast<int>(PushOutcome::kCounted)];
  stats.contributions_duplicate = outcomes_[static_cast<int>(PushOutcome::kDuplicate)];
  stats.contributions_late = outcomes_[static_cast<int>(PushOutcome::kLate)];
  stats.contributions_rejected = rejected_;
  stats.contributions_skipped = skipped_;
  stats.staleness_histogram = staleness_;
}

}  // namespace lodestar::shard
