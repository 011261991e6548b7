// SPDX-License-Identifier: Apache-2.0

// Watches the bulk streams that wait for their peers. If a peer does nothing for too long, its
// stream is ended, even if the connection seems alive. Each stream says whether it waits, and the
// watch counts for how long.
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

// Base class of the streams that a StreamWatch checks.
class WatchedStream {
 public:
  virtual ~WatchedStream() = default;
  // Ends the stream. Called from any thread, without a lock.
  virtual void EndStalled(const absl::Status& status) = 0;
  // Called at each check of the watch, on the watch's thread, without a lock. `awaited` is the time
  // since the last check if the stream has waited for the same step of its peer all that time.
  // Otherwise it is 0. `awaited` does not include time in which the server did not run.
  virtual void OnLook(absl::Duration /*awaited*/) {}

 protected:
  // Must be called when the stream begins to wait for the peer, which has to send or to read.
  void AwaitPeer() { state_.store((NextStep() << 1) | 1, std::memory_order_relaxed); }
  // Must be called when the stream no longer waits for the peer.
  void StopAwaitingPeer() { state_.store(NextStep() << 1, std::memory_order_relaxed); }

 private:
  friend class StreamWatch;
  uint64_t NextStep() const { return (state_.load(std::memory_order_relaxed) >> 1) + 1; }

  // Number of the present step, and whether the stream waits for the peer. Written by one thread at
  // a time.
  std::atomic<uint64_t> state_ = 0;
};

// The class is thread-safe.
class StreamWatch {
 public:
  explicit StreamWatch(absl::Duration patience) : patience_(patience) {}

  void Add(std::weak_ptr<WatchedStream> stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the streams that have waited for the same step of their peer for longer than the patience.
  // Returns the number of these streams. Must be called about once a second.
  int EndStalled(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Maximum time that one check counts. A longer gap between two checks means that the server did
  // not run, so its peers could not do their steps.
  static constexpr absl::Duration kLongestGap = absl::Seconds(5);

  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  struct Entry {
    std::weak_ptr<WatchedStream> stream;
    uint64_t state = 0;
    // Time for which `state` has not changed. A negative time means that the stream was not checked
    // yet.
    absl::Duration waited = -absl::InfiniteDuration();
  };

  const absl::Duration patience_;
  mutable absl::Mutex mutex_;
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
