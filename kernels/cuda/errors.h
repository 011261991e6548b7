// SPDX-License-Identifier: Apache-2.0

// Errors stores the first failure of all calls and kernels of a CUDA device. The failure is never
// cleared. Thread-safe.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <mutex>
#include <source_location>
#include <string>

#include "absl/status/status.h"

namespace lodestar::cuda {

// Returns a status with a message such as "CUDA device 0 (NVIDIA H200): cudaMemcpyAsync at
// copy.cc:12 failed: cudaErrorX: why". Clears the error in the runtime, so that no later
// cudaGetLastError() returns it. Errors: ResourceExhausted (memory); Unavailable (there is no
// device or driver); Internal (all others).
absl::Status CudaStatus(const std::string& device, cudaError_t error, const char* call,
                        std::source_location where = std::source_location::current());

class Errors {
 public:
  // `device` is the name of the device in messages.
  explicit Errors(std::string device) : device_(std::move(device)) {}

  // Stores the error, if `error` is a failure. Returns true if the call succeeded.
  bool Check(cudaError_t error, const char* call,
             std::source_location where = std::source_location::current());
  bool Check(cublasStatus_t status, const char* call,
             std::source_location where = std::source_location::current());
  void Note(const absl::Status& status);
  absl::Status first() const;
  const std::string& device() const { return device_; }

 private:
  const std::string device_;
  mutable std::mutex mutex_;
  absl::Status first_;
};

}  // namespace lodestar::cuda
