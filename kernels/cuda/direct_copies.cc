// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/direct_copies.h"

#include <utility>

namespace lodestar::cuda {

bool DirectCopies::Create(Errors* errors) {
  errors_ = errors;
  for (Stream& stream : streams_) {
    const cudaError_t error = Make(&stream, [](cudaStream_t* handle) {
      return cudaStreamCreateWithFlags(handle, cudaStreamNonBlocking);
    });
    if (!errors_->Check(error, "cudaStreamCreateWithFlags")) return false;
  }
  return true;
}

DirectCopies::~DirectCopies() {
  for (Stream& stream : streams_) {
    if (stream != nullptr) cudaStreamSynchronize(stream.get());
  }
}

void DirectCopies::Run(void* destination, const void* source, size_t bytes, bool to_host,
                       absl::FunctionRef<void()> meanwhile) {
  cudaStream_t const stream = streams_[to_host ? 1 : 0].get();
  Event done = TakeEvent();
  // If another thread queues a copy between these two calls, the event includes that copy as well.
  const bool is_under_way =
      done != nullptr &&
      errors_->Check(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream),
                     "cudaMemcpyAsync") &&
      errors_->Check(cudaEventRecord(done.get(), stream), "cudaEventRecord");
  meanwhile();
  if (!is_under_way) {
    // There is no event to wait for, but the copy may have begun. So Run() waits for the whole
    // stream.
    errors_->Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return;
  }
  errors_->Check(cudaEventSynchronize(done.get()), "cudaEventSynchronize");
  ReturnEvent(std::move(done));
}

Event DirectCopies::TakeEvent() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_events_.empty()) {
      Event event = std::move(idle_events_.back());
      idle_events_.pop_back();
      return event;
    }
  }
  Event event;
  const cudaError_t error = Make(&event, [](cudaEvent_t* handle) {
    return cudaEventCreateWithFlags(handle, cudaEventDisableTiming | cudaEventBlockingSync);
  });
  errors_->Check(error, "cudaEventCreateWithFlags");
  return event;
}

void DirectCopies::ReturnEvent(Event event) {
  const std::lock_guard lock(mutex_);
  idle_events_.push_back(std::move(event));
}

}  // namespace lodestar::cuda
