// SPDX-License-Identifier: Apache-2.0

// The objects that callers of a shard hold: a bucket that arrives, a bucket that is read, and a
// call that waits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/params/encoding.h"
#include "common/runtime/ids.h"
#include "server/shard/contribution.h"
#include "server/shard/page.h"

namespace lodestar::shard {

class BucketAggregator;
class PushSilence;
class StagingSlot;

// A StagedBucket is one bucket of one contribution while it arrives, with the space for its bytes.
// It is not thread-safe, but may be moved to another thread.
//
// If it is destroyed without ParameterShard::FinishBucket(), the bucket is dropped and the space
// goes back to the pool. The pool may then call the `ready` callback of another push. So never
// destroy a StagedBucket while holding a lock that such a callback takes.
class StagedBucket {
 public:
  StagedBucket();
  StagedBucket(StagedBucket&&) noexcept;
  StagedBucket& operator=(StagedBucket&&) noexcept;
  ~StagedBucket();

  // Returns space for the bucket in the encoding of its key. The space is empty if is_discard().
  absl::Span<std::byte> bytes();
  // May be called when the first `num_bytes` bytes of bytes() have arrived. Checks their numbers
  // while they are in the cache, and tells the shard how much has arrived. `last` has copies of the
  // end of these bytes (see NumbersCheck). Numbers that are not checked here are checked later.
  void OnArrived(int64_t num_bytes, absl::Span<const std::byte> last);
  // Returns bytes() as floats. The encoding must be fp32.
  absl::Span<float> data();
  int64_t num_elements() const { return num_elements_; }
  // Returns true if the bucket would not count, because it is a repeat or too late. The caller
  // receives the bytes and throws them away. FinishBucket() then returns which of the two it was.
  bool is_discard() const { return slot_ == nullptr; }
  // Returns true if the space was taken back: the worker's incarnation is over, or the worker sends
  // the contribution anew. The bucket will not count.
  bool is_revoked() const;
  // Returns the record of how long no bytes have arrived. The stream that receives the push must
  // update it. Returns null if is_discard().
  std::shared_ptr<PushSilence> silence() const;
  uint32_t bucket() const { return bucket_; }
  const ContributionKey& key() const { return key_; }

 private:
  friend class BucketAggregator;
  friend class ParameterShard;

  std::shared_ptr<BucketAggregator> owner_;
  std::shared_ptr<StagingSlot> slot_;
  ContributionKey key_;
  std::optional<NumbersCheck> numbers_;  // not set: there are no numbers to check
  uint32_t bucket_ = 0;
  int64_t num_elements_ = 0;
  PushOutcome discard_outcome_ = PushOutcome::kDuplicate;
  absl::Time given_at_;  // time at which the space was given, for traces
};

// A ReadView says what a read of a bucket wants: the weights, their shadow, or the optimizer's
// state. Workers read the shadow if weights travel as encoded changes: see BucketShadow.
struct ReadView {
  bool shadow = false;
  std::optional<Version> held = {};  // version of the reader; it may need only the changes since
  // 0 means the weights, or, with `shadow`, what workers have of them. n means the n-th vector of
  // the optimizer's state.
  uint32_t state_vector = 0;
};

// What a ReadView has asked for, at one version. The pages are complete and never change while they
// are held.
struct PublishedBucket {
  std::shared_ptr<const Page> page;
  int64_t num_elements = 0;
  Version version;
  // If `changes` is not empty, there is no page: these changes of the shadow lead to `version`,
  // oldest first.
  params::Encoding encoding = params::Encoding::kFp32;
  std::vector<std::shared_ptr<const Page>> changes = {};

  absl::Span<const float> data() const { return {page->data(), static_cast<size_t>(num_elements)}; }
};

// A CallTicket is shared by the call that waits and the code that will answer the call. Exactly one
// of the two claims the ticket.
class CallTicket {
 public:
  // Returns true to the first caller only.
  bool Claim() { return !claimed_.exchange(true, std::memory_order_acq_rel); }
  bool is_claimed() const { return claimed_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> claimed_{false};
};

// A PendingCall is a handle to a call that may wait. It can be copied. Dropping it does not cancel
// the call.
class PendingCall {
 public:
  PendingCall() = default;
  explicit PendingCall(std::shared_ptr<CallTicket> ticket) : ticket_(std::move(ticket)) {}

  // Cancels the call. Returns true if the callback will not be called. Returns false if the
  // callback was called before, or is being called now.
  bool Cancel() { return ticket_ != nullptr && ticket_->Claim(); }

 private:
  std::shared_ptr<CallTicket> ticket_;
};

}  // namespace lodestar::shard
