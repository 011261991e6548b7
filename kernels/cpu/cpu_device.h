// The CPU as a Device: fp32, every call done when it returns, on the calling thread and a small
// pool of our own. The same calls with the same number of threads give the same bits.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/compute_pool.h"
#include "kernels/device.h"
#include "kernels/simd/loops.h"

namespace lodestar::cpu {

class CpuDevice final : public kernels::Device {
 public:
  // `threads` >= 1 counts the calling thread.
  CpuDevice(int threads, const simd::Loops& loops);

  const kernels::DeviceCapabilities& capabilities() const override;
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Release(void* memory) override;
  size_t FreeMemoryBytes() override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override;
  void ReleaseHost(void* memory) override;
  kernels::EventId Record(kernels::StreamKind stream) override;
  void Wait(kernels::StreamKind stream, kernels::EventId event) override;
  absl::Status Synchronize(kernels::EventId event) override;

#include "kernels/device_operations.inc"
  void EncodeAndUpdate(Encoding encoding, void* encoded, kernels::Buf next_residual,
                       kernels::Buf values, float scale, kernels::Buf residual,
                       const kernels::Rounding& rounding, float decay,
                       kernels::StreamKind stream) override;

 private:
  // Calls body(begin, end, part) for ranges that cover [0, n): as many as threads, fewer if `cost`
  // (about one per element touched) is too small to share. Ranges begin at multiples of `grain`.
  using RangeBody = absl::FunctionRef<void(int64_t begin, int64_t end, int64_t part)>;
  int64_t NumRanges(int64_t n, int64_t grain, int64_t cost) const;
  void ForRanges(int64_t n, int64_t grain, int64_t cost, RangeBody body);
  // Memory of the device, at least `elements`, valid until the next call. Grows with the first
  // calls of a shape only.
  float* Scratch(int64_t elements);
  // sums[part][columns] of the ranges, added in order into (or set as) out[columns].
  void CombineParts(float* out, const float* parts, int64_t num_parts, int64_t part_stride,
                    int64_t columns, kernels::Accumulate accumulate);
  // On the calling thread, with the packing memory of `lane`: a part of ForRanges, or a thread of
  // the pool.
  void Gemm(const simd::GemmShape& shape, float alpha, const float* a, const float* b, float* c,
            bool add, int64_t lane) {
    loops_.gemm(shape, alpha, a, b, c, add, pack_.get() + lane * simd::kGemmPackElements);
  }
  // C[m,n] (+)= op(A) op(B), the larger of m and n shared among the threads.
  void ParallelGemm(const kernels::MatMulShape& shape, float* c, const float* a, const float* b,
                    kernels::Accumulate accumulate);

  struct FreeDelete {
    void operator()(float* memory) const { std::free(memory); }
  };
  using AlignedFloats = std::unique_ptr<float, FreeDelete>;
  static AlignedFloats AllocateFloats(int64_t elements);

  const simd::Loops& loops_;
  ComputePool pool_;
  kernels::DeviceCapabilities capabilities_;
  AlignedFloats pack_;  // [threads, kGemmPackElements]
  AlignedFloats scratch_;
  int64_t scratch_elements_ = 0;
  std::atomic<kernels::EventId> num_events_{0};
};

std::unique_ptr<kernels::Device> MakeCpuDevice(int threads);

}  // namespace lodestar::cpu
