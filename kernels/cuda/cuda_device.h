// SPDX-License-Identifier: Apache-2.0

// A CUDA card as a Device. It computes in fp32, or from compute capability 8.0 on in bf16 with fp32
// sums. The kernels are those of this folder, matrix products are cuBLASLt's.
//
// - There are three streams for work and two for CopyNow(). Only events determine the order of work
//   on different streams.
// - Some operations use scratch memory of the device, which grows at the first use of a shape and
//   never shrinks. So a shape must have been used once before an operation with this shape is
//   recorded into a graph.
// - Equal calls give equal bits, unless CudaPluginOptions::is_repeatable is false.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_library.h"
#include "kernels/cuda/direct_copies.h"
#include "kernels/cuda/errors.h"
#include "kernels/cuda/event_ring.h"
#include "kernels/cuda/fusion_choice.h"
#include "kernels/cuda/library_attention.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/resources.h"
#include "kernels/cuda/tuning.h"
#include "kernels/device.h"
#include "kernels/factory/cuda_plugin.h"

namespace lodestar::cuda {

// Loaders of libraries that may be missing on the machine. The device works without them.
struct CudaLibraries {
  AttentionLibraryLoader load_attention = {};  // called at the first use; null means none
  NcclLoader load_nccl = nullptr;              // called by groups of cards; null means none
};

class CudaDevice final : public kernels::Device {
 public:
  // Makes the device. Errors: Unavailable (there is no driver or no card); NotFound (there is no
  // card with this ordinal); InvalidArgument (the card cannot compute in the dtype);
  // ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<kernels::Device>> Create(
      const factory::CudaPluginOptions& options, CudaLibraries libraries = {});
  // Returns the number of cards. Errors: Unavailable (there is no driver or no card).
  static absl::StatusOr<int> Count();
  ~CudaDevice() override;

  const kernels::DeviceCapabilities& capabilities() const override { return capabilities_; }
  std::string DescribeChoices() const override;
  int64_t num_refused_outputs() const override { return attention_choice_.num_unequal(); }
  std::string MergeTuning(absl::string_view kept) const override { return tuning_.Merge(kept); }
  std::string DescribeTuning() const override { return tuning_.Describe(); }
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Release(void* memory) override;
  size_t FreeMemoryBytes() override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override;
  void ReleaseHost(void* memory) override;
  absl::Status RegisterHostMemory(void* memory, size_t bytes) override;
  void UnregisterHostMemory(void* memory) override;
  absl::Status CopyNow(void* destination, const void* source, size_t bytes,
                       kernels::StreamKind stream, absl::FunctionRef<void()> meanwhile) override;
  kernels::EventId Record(kernels::StreamKind stream) override;
  void Wait(kernels::StreamKind stream, kernels::EventId event) override;
  absl::Status Synchronize(kernels::EventId event) override;
  kernels::EventId RecordTimed(kernels::StreamKind stream) override;
  absl::StatusOr<double> SecondsBetween(kernels::EventId from, kernels::EventId to) override;
  bool supports_graphs() const override { return true; }
  void BeginGraph() override;
  absl::StatusOr<kernels::GraphId> EndGraph() override;
  void LaunchGraph(kernels::GraphId graph) override;
  absl::StatusOr<std::unique_ptr<kernels::DeviceGroup>> MakeGroup(
      absl::Span<kernels::Device* const> members) override;

#include "kernels/device_operations.inc"

 private:
  CudaDevice(const factory::CudaPluginOptions& options, CudaLibraries libraries,
             const std::string& device, const TuningOrigin& origin);

  // CUDA's current card is a property of the thread. So each public function calls On() to choose
  // this card.
  cudaStream_t On(kernels::StreamKind stream);
  cudaStream_t Compute() { return On(kernels::StreamKind::kCompute); }
  bool Check(cudaError_t error, const char* call,
             std::source_location where = std::source_location::current()) {
    return errors_.Check(error, call, where);
  }
  // Returns at least `bytes` bytes of device memory for one operation on the compute stream. If
  // there is not enough memory, stores the error and returns null. If `bytes` is 0, the result is
  // not null.
  void* Scratch(size_t bytes);
  // Does the same as Scratch(), but returns the error instead of storing it. For callers that can
  // work without the memory.
  absl::StatusOr<void*> TryScratch(size_t bytes);
  // Queues attention by a library, if the library can serve the call and is faster. Otherwise calls
  // `own`, which queues our kernels.
  void RunAttention(AttentionPass pass, const kernels::AttentionShape& shape,
                    const AttentionTensors& tensors, absl::FunctionRef<void()> own);
  // Queues a matrix product. If k is 0, sets c to zeros, or does not change c if the product is to
  // be added to it. Does nothing if m or n is 0.
  void Multiply(const MatMulCall& call);

  const int ordinal_;
  const kernels::DType compute_;
  const bool is_repeatable_;
  const NcclLoader load_nccl_;
  kernels::DeviceCapabilities capabilities_;
  Errors errors_;
  Tuning tuning_;
  FusionChoice fusion_;
  std::array<Stream, 3> streams_;
  EventRing events_;
  EventRing timed_events_;
  DirectCopies direct_copies_;
  std::unique_ptr<MatMulEngine> matmul_;
  CudaAttention attention_;
  LibraryAttention library_attention_;
  FusionChoice attention_choice_;
  bool is_recording_ = false;
  std::vector<GraphExecutable> graphs_;
  // Only the last buffer is used. Earlier buffers are not freed, because recorded graphs may use
  // them.
  std::vector<DeviceMemory> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace lodestar::cuda
