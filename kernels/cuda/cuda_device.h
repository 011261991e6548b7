// A CUDA card as a Device: fp32, or bf16 with fp32 sums from compute capability 8.0 on. Kernels are
// ours (the other files of this folder), matrix products cuBLASLt's.
//
// Three streams, none ordered with another but by events, and two of CopyNow(). Some operations use
// scratch memory of the device, which grows at the first use of a shape and never shrinks;
// recording a graph needs that every shape in it was used before. The same calls give the same
// bits, unless CudaPluginOptions::is_repeatable says that they need not.
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

// What is found on the machine at run time; everything works without it.
struct CudaLibraries {
  AttentionLibraryLoader load_attention = {};  // the first use asks for it; null: none
  NcclLoader load_nccl = nullptr;              // groups ask for it; null: none
};

class CudaDevice final : public kernels::Device {
 public:
  // Errors: Unavailable without driver or card; NotFound for an ordinal that there is not;
  // InvalidArgument for a dtype that the card cannot compute in; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<kernels::Device>> Create(
      const factory::CudaPluginOptions& options, CudaLibraries libraries = {});
  // Errors: Unavailable without driver or card.
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

  // The card is chosen per thread, so each entry chooses it.
  cudaStream_t On(kernels::StreamKind stream);
  cudaStream_t Compute() { return On(kernels::StreamKind::kCompute); }
  bool Check(cudaError_t error, const char* call,
             std::source_location where = std::source_location::current()) {
    return errors_.Check(error, call, where);
  }
  // At least that much device memory for one operation on the compute stream; null, and a failure
  // is noted, if there is none. Never null for 0.
  void* Scratch(size_t bytes);
  // The same, but for the caller to do without it: the failure is not noted.
  absl::StatusOr<void*> TryScratch(size_t bytes);
  // By `own` kernels, or by a library that can and is faster.
  void RunAttention(AttentionPass pass, const kernels::AttentionShape& shape,
                    const AttentionTensors& tensors, absl::FunctionRef<void()> own);
  // A product with no rows, columns or depth has nothing to ask cuBLASLt for.
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
  // The last is the one in use; earlier ones may be part of a graph.
  std::vector<DeviceMemory> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace lodestar::cuda
