// SPDX-License-Identifier: Apache-2.0

// The interface of a library that computes attention. Some machines do not have such a library. Its
// attention is causal, in bf16 and without dropout. It uses the tensors of
// Device::AttentionForward() and AttentionBackward().
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/operation_arguments.h"

namespace lodestar::cuda {

enum class AttentionPass : uint8_t {
  kForward,
  kBackward,
  // A backward pass that adds the gradients of queries in the order in which blocks finish. This
  // order may change, so equal tensors can give results that differ in the last bits.
  kUnorderedBackward,
};

// The tensors are in device memory. They begin at multiples of 16 bytes, except for log_sum_exp,
// which may begin at any float.
struct AttentionTensors {
  const void* qkv;  // [batch, tokens, 3, heads, head_width] bf16
  void* y;          // [batch, tokens, heads, head_width] bf16; the backward pass reads it
  // The natural logarithm of the sum of exponentials of scaled scores. The backward pass reads it.
  float* log_sum_exp;  // [batch, heads, tokens]
  // Only the backward pass uses the tensors below.
  const void* dy = nullptr;  // [batch, tokens, heads, head_width] bf16
  void* dqkv = nullptr;      // [batch, tokens, 3, heads, head_width] bf16; set by backward
};

// A forward or backward pass for one shape, ready to run.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  // Returns how many bytes of device memory a run needs.
  virtual size_t workspace_bytes() const = 0;
  // Returns the number of bytes at the beginning of the workspace that the caller must set to 0
  // before each run.
  virtual size_t zeroed_bytes() const { return 0; }
  // Queues the pass. After the first run, further runs may be recorded into a graph. Equal tensors
  // give equal bits, except with kUnorderedBackward. `workspace` begins at a multiple of 256 bytes.
  // Errors: those of the library. After an error the caller must compute the outputs in another
  // way.
  virtual absl::Status Run(const AttentionTensors& tensors, void* workspace,
                           cudaStream_t stream) = 0;
};

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // Returns the library's name and version, for logs.
  virtual std::string name() const = 0;
  // Makes a plan, which may take up to a second on the host. The plan may outlive the library.
  // Errors: Unimplemented (the library has no kernels for the shape or card, or `pass` requires
  // equal bits in equal runs and no kernel gives them); others of the library.
  virtual absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(
      AttentionPass pass, const kernels::AttentionShape& shape) = 0;
};

// Loads a library for the current CUDA device. Errors: the reason why no library can be loaded.
using AttentionLibraryLoader = std::function<absl::StatusOr<std::unique_ptr<AttentionLibrary>>()>;

}  // namespace lodestar::cuda
