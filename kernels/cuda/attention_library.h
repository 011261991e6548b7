// The interface to attention of another library, which may be missing when a process starts. This
// attention is causal, in bf16 and without dropout. It takes the tensors of
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
  // A backward pass that adds the gradients of queries up in the order in which blocks finish. The
  // same tensors can therefore give results that differ in the last bits.
  kUnorderedBackward,
};

// The tensors are in device memory. They begin at multiples of 16 bytes, except for log_sum_exp,
// which may begin at any float.
struct AttentionTensors {
  const void* qkv;     // [batch, tokens, 3, heads, head_width] bf16
  void* y;             // [batch, tokens, heads, head_width] bf16; read by backward
  float* log_sum_exp;  // [batch, heads, tokens], natural logarithm of the scaled scores; read
                       // by backward
  // Only the backward pass uses the tensors below.
  const void* dy = nullptr;  // [batch, tokens, heads, head_width] bf16
  void* dqkv = nullptr;      // [batch, tokens, 3, heads, head_width] bf16, set
};

// A plan is one pass for one shape, ready to run.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  // Returns how many bytes of device memory a run uses.
  virtual size_t workspace_bytes() const = 0;
  // Returns how many bytes at the begin of the workspace the caller sets to 0 before each run.
  virtual size_t zeroed_bytes() const { return 0; }
  // Queues the pass. If the plan has run before, a run may be part of a recorded graph. The same
  // tensors give the same bits, except with kUnorderedBackward. `workspace` begins at a multiple of
  // 256 bytes. Errors: what the library says; the outputs are then to be computed otherwise.
  virtual absl::Status Run(const AttentionTensors& tensors, void* workspace,
                           cudaStream_t stream) = 0;
};

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // Returns the library's name with its version, for logs.
  virtual std::string name() const = 0;
  // Makes a plan, which takes the host up to a second. Plans outlive the library. Errors:
  // Unimplemented if the library has nothing for the shape or card, or nothing that repeats to the
  // bit where the pass has to; others of the library.
  virtual absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(
      AttentionPass pass, const kernels::AttentionShape& shape) = 0;
};

// Loads a library for the present CUDA device. Errors: why there is none.
using AttentionLibraryLoader = std::function<absl::StatusOr<std::unique_ptr<AttentionLibrary>>()>;

}  // namespace lodestar::cuda
