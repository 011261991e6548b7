// How long the card takes for what is queued on a stream, by events of its own.
#pragma once

#include "absl/functional/function_ref.h"
#include "kernels/cuda/resources.h"

namespace lodestar::cuda {

class StreamTimer {
 public:
  // *seconds: of one of `calls` calls of `run`, which queues work on `stream`. Waits until the card
  // is done with it, so not while the stream is recorded. Errors: also those of what runs; they are
  // for the caller to note.
  cudaError_t Measure(cudaStream_t stream, int calls, absl::FunctionRef<void()> run,
                      double* seconds);

 private:
  Event begin_, end_;  // made with the first call
};

}  // namespace lodestar::cuda
