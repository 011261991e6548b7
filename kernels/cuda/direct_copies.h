// SPDX-License-Identifier: Apache-2.0

// DirectCopies copies between device and host memory. A copy is done when the call returns. Any
// thread may call it. Each direction has its own stream, so that copies do not wait for
// computations of the device.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cuda/errors.h"
#include "kernels/cuda/resources.h"

namespace lodestar::cuda {

class DirectCopies {
 public:
  // Creates the streams on the calling thread's current card. Errors, also those of Run(), are
  // stored in `errors`, which must outlive the object. Returns false if the object cannot be used.
  bool Create(Errors* errors);
  // Blocks until running copies have finished.
  ~DirectCopies();

  // Copies `bytes` bytes and blocks until they have arrived. Calls `meanwhile` on this thread while
  // the copy runs, and also if the copy could not be started. The calling thread's current card
  // must be the card of Create(). Thread-safe.
  void Run(void* destination, const void* source, size_t bytes, bool to_host,
           absl::FunctionRef<void()> meanwhile);

 private:
  Event TakeEvent();
  // Keeps an unused event for later copies. Requires: the copies before the event are done.
  void ReturnEvent(Event event);

  Errors* errors_ = nullptr;
  std::array<Stream, 2> streams_;  // the first copies to the device, the second to the host
  std::mutex mutex_;
  // Unused events for later copies, guarded by mutex_. There are at most as many as copies have run
  // at the same time.
  std::vector<Event> idle_events_;
};

}  // namespace lodestar::cuda
