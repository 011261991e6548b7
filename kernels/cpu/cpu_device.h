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

namespace lodestar {

class CpuDevice final : public Device {
 public:
  // `threads` >= 1 counts the calling thread.
  CpuDevice(int threads, const simd::Loops& loops);

  const DeviceCapabilities& capabilities() const override;
  absl::StatusOr<void*> Allocate(size_t bytes) override;
  void Release(void* memory) override;
  size_t FreeMemoryBytes() override;
  absl::StatusOr<void*> AllocateHost(size_t bytes) override;
  void ReleaseHost(void* memory) override;
  EventId Record(StreamKind stream) override;
  void Wait(StreamKind stream, EventId event) override;
  absl::Status Synchronize(EventId event) override;

#include "kernels/device_operations.inc"
  void EncodeAndUpdate(Encoding encoding, void* encoded, Buf next_residual, Buf values, float scale,
                       Buf residual, const Rounding& rounding, float decay,
                       StreamKind stream) override;

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
                    int64_t columns, Accumulate accumulate);
  // On the calling thread, with the packing memory of `lane`: a part of ForRanges, or a thread of
  // the pool.
  void Gemm(const simd::GemmShape& shape, float alpha, const float* a, const float* b, float* c,
            bool add, int64_t lane) {
    loops_.gemm(shape, alpha, a, b, c, add, pack_.get() + lane * simd::kGemmPackElements);
  }
  // C[m,n] (+)= op(A) op(B), the larger of m and n shared among the threads.
  void ParallelGemm(const MatMulShape& shape, float* c, const float* a, const float* b,
                    Accumulate accumulate);

  struct FreeDelete {
    void operator()(float* memory) const { std::free(memory); }
  };
  using AlignedFloats = std::unique_ptr<float, FreeDelete>;
  static AlignedFloats AllocateFloats(int64_t elements);

  const simd::Loops& loops_;
  ComputePool pool_;
  DeviceCapabilities capabilities_;
  AlignedFloats pack_;  // [threads, kGemmPackElements]
  AlignedFloats scratch_;
  int64_t scratch_elements_ = 0;
  std::atomic<EventId> num_events_{0};
};

std::unique_ptr<Device> MakeCpuDevice(int threads);

}  // namespace lodestar
