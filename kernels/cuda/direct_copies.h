// Copies between device and host memory that are done when the call returns, from any thread: each
// direction on a stream of its own, so that none waits for what the device computes.
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
  // On the calling thread's card; errors, also those of Run(), go to `errors`, which outlives the
  // object. False: not usable.
  bool Create(Errors* errors);
  // Waits for copies under way.
  ~DirectCopies();

  // `meanwhile` is called, on this thread, while the copy runs; also if it could not be begun. The
  // card is the calling thread's. Thread-safe.
  void Run(void* destination, const void* source, size_t bytes, bool to_host,
           absl::FunctionRef<void()> meanwhile);

 private:
  Event TakeEvent();
  // On which the card has nothing left to do.
  void ReturnEvent(Event event);

  Errors* errors_ = nullptr;
  std::array<Stream, 2> streams_;  // to the device, to the host
  std::mutex mutex_;
  std::vector<Event> idle_events_;  // guarded by mutex_; as many as copies ran at once
};

}  // namespace lodestar::cuda
