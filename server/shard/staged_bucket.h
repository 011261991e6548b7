// One bucket of one contribution while it arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/shard/contribution.h"

namespace lodestar {

class BucketAggregator;
class StagingSlot;

// Space to receive into. Destroyed without ParameterShard::FinishBucket() it leaves no trace and
// its space goes back, which may call the `ready` of whoever waits for space: never destroy one
// under a lock that such a callback takes. Not thread-safe; movable between threads.
class StagedBucket {
 public:
  StagedBucket();
  StagedBucket(StagedBucket&&) noexcept;
  StagedBucket& operator=(StagedBucket&&) noexcept;
  ~StagedBucket();

  // Room for the bucket in the encoding of its key; empty if is_discard().
  absl::Span<std::byte> bytes();
  // The same if that is fp32.
  absl::Span<float> data();
  int64_t num_elements() const { return num_elements_; }
  // True for what would not count anyway (a repeat, or too late): receive and throw away, then
  // FinishBucket() tells which it was.
  bool is_discard() const { return slot_ == nullptr; }
  uint32_t bucket() const { return bucket_; }
  const ContributionKey& key() const { return key_; }

 private:
  friend class BucketAggregator;
  friend class ParameterShard;

  std::shared_ptr<BucketAggregator> owner_;
  std::shared_ptr<StagingSlot> slot_;
  ContributionKey key_;
  uint32_t bucket_ = 0;
  int64_t num_elements_ = 0;
  PushOutcome discard_outcome_ = PushOutcome::kDuplicate;
  absl::Time given_at_;  // for traces
};

}  // namespace lodestar
