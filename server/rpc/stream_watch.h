// Bulk streams that wait for their peers: those to or from which nothing has come for too long are
// ended, whatever the peer says otherwise. Whether a stream waits, it says itself; for how long, is
// counted here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lodestar::rpc {

// A WatchedStream is one that can be watched.
class WatchedStream {
 public:
  virtual ~WatchedStream() = default;
  // Called from any thread, without a lock.
  virtual void EndStalled(const absl::Status& status) = 0;
  // Called at each look of the watch, from its thread, without a lock. `awaited` is the time since
  // the last look if the peer has owed the same step for all of it, and 0 otherwise. It is at most
  // the usual time between two looks, because a server that did not run has not read.
  virtual void OnLook(absl::Duration /*awaited*/) {}

 protected:
  // From now on the next step is the peer's.
  void AwaitPeer() { state_.store((NextStep() << 1) | 1, std::memory_order_relaxed); }
  // The peer has done its step; or there is none that it owes.
  void StopAwaitingPeer() { state_.store(NextStep() << 1, std::memory_order_relaxed); }

 private:
  friend class StreamWatch;
  uint64_t NextStep() const { return (state_.load(std::memory_order_relaxed) >> 1) + 1; }

  // Number of the step, and whether it is the peer's. Written by one thread at a time.
  std::atomic<uint64_t> state_ = 0;
};

// Thread-safe.
class StreamWatch {
 public:
  explicit StreamWatch(absl::Duration patience) : patience_(patience) {}

  void Add(std::weak_ptr<WatchedStream> stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // Must be called every second or so. It ends the streams whose peer has owed the same step for
  // longer than the patience, and returns how many.
  int EndStalled(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Between two looks: a server that did not run meanwhile has kept its peers from their steps.
  static constexpr absl::Duration kLongestGap = absl::Seconds(5);

  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  struct Entry {
    std::weak_ptr<WatchedStream> stream;
    uint64_t state = 0;
    absl::Duration waited = -absl::InfiniteDuration();  // with this state; has not been looked at
  };

  const absl::Duration patience_;
  mutable absl::Mutex mutex_;
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
