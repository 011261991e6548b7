// These are the things that callers of a shard hold: a bucket of theirs on its way in, a bucket
// that they read, and a call that waits for either.
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

// A StagedBucket is one bucket of one contribution while it arrives: space to receive into. If it
// is destroyed without ParameterShard::FinishBucket(), it leaves no trace and its space goes back.
// That may call the `ready` of a call that waits for space, so never destroy one under a lock that
// such a callback takes. It is not thread-safe, but movable between threads.
class StagedBucket {
 public:
  StagedBucket();
  StagedBucket(StagedBucket&&) noexcept;
  StagedBucket& operator=(StagedBucket&&) noexcept;
  ~StagedBucket();

  // Room for the bucket in the encoding of its key; empty if is_discard().
  absl::Span<std::byte> bytes();
  // The first num_bytes of bytes() are there, and the last of these are in `last` as well (see
  // NumbersCheck). The call looks at their numbers while they are in the cache, and tells the shard
  // how much has come. It need not be called: the shard looks at all numbers that were not looked
  // at before.
  void OnArrived(int64_t num_bytes, absl::Span<const std::byte> last);
  // Returns the same space if the encoding is fp32.
  absl::Span<float> data();
  int64_t num_elements() const { return num_elements_; }
  // True for a bucket that would not count anyway (a repeat, or too late). The caller receives it
  // and throws it away; then FinishBucket() tells which it was.
  bool is_discard() const { return slot_ == nullptr; }
  // True if its place in the space of the shard is given to others, because its worker's life is
  // over, or the worker has begun it anew. It counts nothing.
  bool is_revoked() const;
  // The reader of the push is to keep it up to date. Null if is_discard().
  std::shared_ptr<PushSilence> silence() const;
  uint32_t bucket() const { return bucket_; }
  const ContributionKey& key() const { return key_; }

 private:
  friend class BucketAggregator;
  friend class ParameterShard;

  std::shared_ptr<BucketAggregator> owner_;
  std::shared_ptr<StagingSlot> slot_;
  ContributionKey key_;
  std::optional<NumbersCheck> numbers_;  // none: there are no numbers to look at
  uint32_t bucket_ = 0;
  int64_t num_elements_ = 0;
  PushOutcome discard_outcome_ = PushOutcome::kDuplicate;
  absl::Time given_at_;  // for traces
};

// Which of a bucket's numbers are read: the weights, or what workers have of them where weights
// travel as encoded changes.
struct ReadView {
  bool shadow = false;
  std::optional<Version> held = {};  // of the shadow; the changes since then are enough
};

// A bucket's weights, or their shadow, at one version; immutable and whole as long as it is held.
struct PublishedBucket {
  std::shared_ptr<const Page> page;
  int64_t num_elements = 0;
  Version version;
  // Instead of a page there may be the changes of the shadow that lead to `version`, oldest first.
  Encoding encoding = Encoding::kFp32;
  std::vector<std::shared_ptr<const Page>> changes = {};

  absl::Span<const float> data() const { return {page->data(), static_cast<size_t>(num_elements)}; }
};

// A CallTicket is shared by the call that waits and the code that will answer it: exactly one of
// them gets the call.
class CallTicket {
 public:
  // True for the first caller only.
  bool Claim() { return !claimed_.exchange(true, std::memory_order_acq_rel); }
  bool is_claimed() const { return claimed_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> claimed_{false};
};

// A PendingCall is what a call that may wait returns. It can be copied, and dropping it cancels
// nothing.
class PendingCall {
 public:
  PendingCall() = default;
  explicit PendingCall(std::shared_ptr<CallTicket> ticket) : ticket_(std::move(ticket)) {}

  // Returns true if the callback will not be called. Returns false if it was called before, or is
  // being called now.
  bool Cancel() { return ticket_ != nullptr && ticket_->Claim(); }

 private:
  std::shared_ptr<CallTicket> ticket_;
};

}  // namespace lodestar::shard
