// SPDX-License-Identifier: Apache-2.0

// StagingPool is a fixed number of slots for contributions that are arriving.
// - The last free slot is only for a contribution in turn. Such a contribution gives its slot back
//   without waiting for another contribution. So a full pool empties as long as workers send.
// - The coordinator must drop a worker that has a slot and does not send, or sends too slowly: see
//   PushSpace.
// - If the pool has at least four slots, one pusher gets at most all slots but two. So two slots
//   are left even if that pusher is slow and not dropped. A limit of half of the slots would make a
//   job of two workers slower by a twentieth.
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

// A StagingSlot owns the space of one contribution to one bucket. Its destructor may call the
// callback of a waiting request, so it must not run under a lock.
//
// A slot counts as used in the pool until it is destroyed or revoked. After Revoke(), a stream may
// still write into the slot's page, because no other slot has that page.
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
  // Makes the pool count the slot as free, which may call the callback of a waiting request. A
  // second call does nothing.
  void Revoke();
  bool is_revoked() const { return is_revoked_.load(std::memory_order_relaxed); }
  // Takes the page out of the slot. The pool still counts the slot as used until it is destroyed or
  // revoked.
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

  // Returns a slot for a contribution of `pusher`. If no slot is free for it, returns a request
  // that waits in the queue. The thread that frees a slot later calls `granted` once, without a
  // lock held. `in_turn` is true if the contribution does not wait for other contributions.
  Acquired Acquire(const sync::Pusher& pusher, bool in_turn, Granted granted);
  // Must be called when the turn of the request has come. Returns a slot if one is free for the
  // request. The request is then out of the queue, and its callback will not be called.
  std::shared_ptr<StagingSlot> Promote(const std::shared_ptr<Request>& request);
  // Removes the request from the queue. Returns false if the request has already got a slot.
  bool Remove(const std::shared_ptr<Request>& request);

  // Returns true if `pusher` has fewer slots than one pusher may have. Then its requests wait
  // because of other pushers.
  bool IsOwedMore(const sync::Pusher& pusher) const;
  int num_slots() const { return num_slots_; }
  int num_used() const;

 private:
  friend class StagingSlot;
  // Counts the slot as free. First returns `page` to the page pool, so that the next slot may use
  // it. Null means that the holder of the slot keeps the page.
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
