// SPDX-License-Identifier: Apache-2.0

// Measures how long the card takes for work on a stream, by events.
#pragma once

#include "absl/functional/function_ref.h"
#include "kernels/cuda/resources.h"

namespace lodestar::cuda {

class StreamTimer {
 public:
  // Calls `run`, which queues work on `stream`, `calls` times. Sets *seconds to the mean time of
  // one call. Blocks until the card has finished the work, so the stream must not be recorded.
  // Errors: those of CUDA, also of the work itself. The caller must store them in Errors.
  cudaError_t Measure(cudaStream_t stream, int calls, absl::FunctionRef<void()> run,
                      double* seconds);

 private:
  Event begin_, end_;  // created at the first call
};

}  // namespace lodestar::cuda
