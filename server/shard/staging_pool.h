// SPDX-License-Identifier: Apache-2.0

// StagingPool is bounded space for contributions that are arriving. The last free slot is kept for
// a contribution whose turn it is, because only such a contribution gives its slot back without
// waiting for any other. So a full pool empties as long as the workers that have space send. The
// coordinator must drop a worker that does not send, or sends too slowly: see PushSpace.
//
// If the pool has four slots or more, one pusher gets at most all slots but two. So a pusher that
// is almost too slow, but never slow enough to be dropped, leaves two slots to others. (If the
// limit were half of the slots, a job of two workers would lose a twentieth of its push rate.)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/shard/page.h"
#include "server/sync/push_space.h"

namespace lodestar::shard {

class StagingPool;

// PushSilence measures how long the client of a push has sent nothing while the server was reading.
// It is thread-safe.
class PushSilence {
 public:
  void Set(absl::Duration duration) {
    nanoseconds_.store(absl::ToInt64Nanoseconds(duration), std::memory_order_relaxed);
  }
  absl::Duration duration() const {
    return absl::Nanoseconds(nanoseconds_.load(std::memory_order_relaxed));
  }

 private:
  std::atomic<int64_t> nanoseconds_ = 0;
};

// A StagingSlot owns the space of one contribution to one bucket. Its destruction may run a waiting
// request's callback, so never destroy it under a lock.
//
// A slot takes a place in the pool until it is destroyed or revoked. If a stream still writes into
// a revoked slot, it writes into a page that no other slot uses, and another pusher may take the
// place.
class StagingSlot {
 public:
  StagingSlot(std::shared_ptr<StagingPool> pool, const sync::Pusher& pusher,
              std::shared_ptr<Page> page);
  ~StagingSlot();
  StagingSlot(const StagingSlot&) = delete;
  StagingSlot& operator=(const StagingSlot&) = delete;

  float* data() { return page_->data(); }
  std::byte* bytes() { return reinterpret_cast<std::byte*>(data()); }
  int64_t num_elements() const { return page_->size(); }
  // Sets how many of the bytes have arrived. Any thread may read the number.
  void SetReceived(int64_t num_bytes) {
    received_bytes_.store(num_bytes, std::memory_order_relaxed);
  }
  int64_t received_bytes() const { return received_bytes_.load(std::memory_order_relaxed); }
  const std::shared_ptr<PushSilence>& silence() const { return silence_; }
  // Gives the place back to the pool, which may run a waiting request's callback. A second call
  // does nothing.
  void Revoke();
  bool is_revoked() const { return is_revoked_.load(std::memory_order_relaxed); }
  // Takes the page out of the slot. The place in the pool stays taken until the slot is destroyed
  // or revoked.
  std::shared_ptr<Page> TakePage() { return std::move(page_); }

 private:
  friend class StagingPool;

  const std::shared_ptr<StagingPool> pool_;
  const sync::Pusher pusher_;
  std::shared_ptr<Page> page_;
  std::atomic<int64_t> received_bytes_ = 0;
  const std::shared_ptr<PushSilence> silence_ = std::make_shared<PushSilence>();
  std::atomic<bool> is_revoked_ = false;
  bool has_place_ = true;  // guarded by the pool's lock
};

// The class is thread-safe. Its lock is a leaf: no callback is called under it.
class StagingPool : public std::enable_shared_from_this<StagingPool> {
 public:
  using Granted = std::function<void(std::shared_ptr<StagingSlot>)>;
  class Request;

  // The pool has at least two slots, made of pages of `pages`. Each slot has space for
  // slot_elements elements in any encoding.
  StagingPool(int64_t slot_elements, int num_slots, std::shared_ptr<PagePool> pages);

  // Exactly one of the two members is set.
  struct Acquired {
    std::shared_ptr<StagingSlot> slot;
    std::shared_ptr<Request> request;
  };

  // Returns a slot for a contribution of `pusher`, or a request in the queue. If it is a request,
  // `granted` is called once, later, without a lock held, by the thread that gives a slot back.
  // `in_turn` says whether it is the contribution's turn: see above.
  Acquired Acquire(const sync::Pusher& pusher, bool in_turn, Granted granted);
  // Must be called when the turn of the request has come. Returns a slot if one is free for the
  // request. The request is then out of the queue, and its callback will not be called.
  std::shared_ptr<StagingSlot> Promote(const std::shared_ptr<Request>& request);
  // Removes the request from the queue. Returns false if the request has already got a slot.
  bool Remove(const std::shared_ptr<Request>& request);

  // Returns true if requests of `pusher` wait because of other pushers, and not because of the
  // slots that it has itself.
  bool IsOwedMore(const sync::Pusher& pusher) const;
  int num_slots() const { return num_slots_; }
  int num_used() const;

 private:
  friend class StagingSlot;
  // Gives the slot's place back, and `page` too, before another pusher gets a slot. If `page` is
  // null, the holder keeps the page.
  void GiveBack(StagingSlot& slot, std::shared_ptr<Page> page);
  int NumOf(const sync::Pusher& pusher) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns a slot for this pusher. Null means that no slot is free for it, or that there is no
  // memory for one.
  std::shared_ptr<StagingSlot> TryTake(const sync::Pusher& pusher, bool in_turn)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t slot_elements_;
  const int num_slots_;
  const int most_of_one_;
  const std::shared_ptr<PagePool> pages_;
  mutable absl::Mutex mutex_;
  int num_used_ ABSL_GUARDED_BY(mutex_) = 0;
  // Number of slots of each pusher that has any.
  std::map<sync::Pusher, int> num_of_pusher_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Request>> queue_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::shard
