// SPDX-License-Identifier: Apache-2.0

// Computes attention by a library, as an alternative to our own kernels. The class knows which
// calls the library can serve, and keeps a plan for each shape. It loads the library when a call
// first needs it.
//
// A backward pass is repeatable if the same inputs always give the same bits. The workspace of a
// repeatable pass may grow with the square of the number of tokens. So the class computes only so
// many samples at a time that the workspace stays within kMostWorkspaceBytes.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/buf.h"
#include "kernels/cuda/attention_library.h"

namespace lodestar::cuda {

class LibraryAttention {
 public:
  static constexpr size_t kMostWorkspaceBytes = size_t{256} << 20;
  // Returns `bytes` bytes of device memory for one call. Errors: the reason why there is no memory.
  using Scratch = absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)>;

  // A null `load` means that there is no library. In that case messages do not mention a library.
  explicit LibraryAttention(AttentionLibraryLoader load) : load_(std::move(load)) {}

  // Returns true if the library may serve calls of this dtype and shape with these tensors. With
  // `is_recording`, returns false if the library is not loaded yet, because it cannot be loaded
  // while a graph is recorded.
  bool Takes(const kernels::AttentionShape& shape, kernels::DType dtype,
             const AttentionTensors& tensors, bool is_recording);
  // Returns the library's name. Requires: Takes() has returned true.
  std::string library_name() const { return (*library_)->name(); }
  // Queues the pass. Errors: the reason why the library does not compute the pass. After an error
  // the caller must compute the outputs in another way.
  absl::Status Run(AttentionPass pass, const kernels::AttentionShape& shape,
                   const AttentionTensors& tensors, Scratch scratch, cudaStream_t stream);
  // Returns a line with the library's name if it was loaded, and a line for each reason why calls
  // were not served. Any thread may call this.
  std::string Describe() const;

 private:
  struct Key {
    AttentionPass pass;
    int64_t batch, tokens, heads, head_width;

    auto operator<=>(const Key&) const = default;
  };
  struct Planned {
    std::unique_ptr<AttentionPlan> plan;
    int64_t samples;  // samples of one run; a divisor of the batch
  };

  absl::StatusOr<Planned*> PlanFor(AttentionPass pass, const kernels::AttentionShape& shape);
  absl::StatusOr<Planned> MakePlan(AttentionPass pass, kernels::AttentionShape shape);

  const AttentionLibraryLoader load_;
  std::map<Key, Planned> plans_;
  mutable std::mutex mutex_;
  // Only one thread calls Takes() and Run(), which change the members below. They hold mutex_
  // meanwhile.
  bool is_loaded_ = false;
  absl::StatusOr<std::unique_ptr<AttentionLibrary>> library_ = nullptr;
  std::set<std::string> reasons_;
};

// Returns the tensors of the samples from `first` on.
AttentionTensors SamplesFrom(const AttentionTensors& tensors, int64_t first,
                             const kernels::AttentionShape& shape);

// Returns a name such as "attention forward 16 x 1024 tokens, 12 heads of 64".
std::string NameOf(AttentionPass pass, const kernels::AttentionShape& shape);

}  // namespace lodestar::cuda
