// Attention of another library, which is there or not when a process starts: causal, in bf16,
// without dropout, with the tensors of Device::AttentionForward() and AttentionBackward().
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
  // Backward that adds the gradients of queries up in whatever order blocks come in: the same
  // tensors give results that differ in last bits.
  kUnorderedBackward,
};

// Device memory, at multiples of 16 bytes but for log_sum_exp, which may begin at any float.
struct AttentionTensors {
  const void* qkv;           // [batch, tokens, 3, heads, head_width] bf16
  void* y;                   // [batch, tokens, heads, head_width] bf16; read by backward
  float* log_sum_exp;        // [batch, heads, tokens], natural logarithm of the scaled scores; read
                             // by backward
  const void* dy = nullptr;  // [batch, tokens, heads, head_width] bf16; this and the rest: backward
  void* dqkv = nullptr;      // [batch, tokens, 3, heads, head_width] bf16, set
};

// One pass for one shape, ready to run.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
  // Of device memory that a run uses.
  virtual size_t workspace_bytes() const = 0;
  // Returns how many bytes at the begin of the workspace the caller sets to 0 before each run.
  virtual size_t zeroed_bytes() const { return 0; }
  // Queues the pass, which may be part of a graph that is recorded once it has run before. The same
  // tensors give the same bits, but for kUnorderedBackward. `workspace`: at a multiple of 256
  // bytes. Errors: what the library says; the outputs are then to be computed otherwise.
  virtual absl::Status Run(const AttentionTensors& tensors, void* workspace,
                           cudaStream_t stream) = 0;
};

class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;
  // With its version, for logs.
  virtual std::string name() const = 0;
  // Takes the host up to a second. Plans outlive the library. Errors: Unimplemented for a shape, or
  // a card, for which the library has nothing that repeats to the bit where the pass has to; others
  // of the library.
  virtual absl::StatusOr<std::unique_ptr<AttentionPlan>> Plan(AttentionPass pass,
                                                              const AttentionShape& shape) = 0;
};

// Loads a library for the present CUDA device. Errors: why there is none.
using AttentionLibraryLoader = std::function<absl::StatusOr<std::unique_ptr<AttentionLibrary>>()>;

}  // namespace lodestar::cuda
