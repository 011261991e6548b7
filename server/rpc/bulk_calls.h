// SPDX-License-Identifier: Apache-2.0

// BulkCalls knows the state of the bulk calls under way, for clients that ask because they have
// seen no progress. A client gives its call a number in the metadata
// (proto/parameter_service.proto). A call without a number, or with a number that is in use, is not
// known here.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "proto/parameter_service.pb.h"

namespace lodestar::rpc {

// A BulkCall is the state of one call. Its stream writes the state, and any thread may read it.
class BulkCall {
 public:
  void set_phase(v1::CallState::Phase phase) { phase_.store(phase, std::memory_order_relaxed); }
  void AddBytes(uint64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // Ends the call: from now on state() is empty, even if the phase or the bytes still change.
  void End() { is_over_.store(true, std::memory_order_relaxed); }
  v1::CallState state() const {
    v1::CallState state;
    if (is_over_.load(std::memory_order_relaxed)) return state;
    state.set_phase(phase_.load(std::memory_order_relaxed));
    state.set_bytes(bytes_.load(std::memory_order_relaxed));
    return state;
  }

 private:
  std::atomic<v1::CallState::Phase> phase_ = v1::CallState::PHASE_HELD;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<bool> is_over_ = false;
};

// The class is thread-safe.
class BulkCalls : public std::enable_shared_from_this<BulkCalls> {
 public:
  // Registers a call that begins. StateOf() returns its state until the call ends or the returned
  // object is destroyed.
  std::shared_ptr<BulkCall> Begin(const grpc::CallbackServerContext& context)
      ABSL_LOCKS_EXCLUDED(mutex_);
  v1::CallState StateOf(uint64_t number) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void End(uint64_t number) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    open_.erase(number);
  }

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, const BulkCall*> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::rpc
