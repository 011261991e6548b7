// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/stream_timer.h"

namespace lodestar::cuda {

cudaError_t StreamTimer::Measure(cudaStream_t stream, int calls, absl::FunctionRef<void()> run,
                                 double* seconds) {
  // Threads that wait for an event sleep instead of spinning, because reading data needs the cores.
  const auto make = [](cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventBlockingSync);
  };
  for (Event* event : {&begin_, &end_}) {
    if (*event != nullptr) continue;
    if (const cudaError_t error = Make(event, make); error != cudaSuccess) return error;
  }
  cudaError_t error = cudaEventRecord(begin_.get(), stream);
  if (error != cudaSuccess) return error;
  for (int i = 0; i < calls; ++i) run();
  error = cudaEventRecord(end_.get(), stream);
  if (error != cudaSuccess) return error;
  error = cudaEventSynchronize(end_.get());
  if (error != cudaSuccess) return error;
  float milliseconds = 0.0f;
  error = cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get());
  *seconds = milliseconds / 1e3 / calls;
  return error;
}

}  // namespace lodestar::cuda
