// SPDX-License-Identifier: Apache-2.0

// CpuDevice is the CPU as a Device that computes in fp32. Every call has finished when it returns.
// It runs on the calling thread and on a small pool that the device owns. The same calls with the
// same number of threads give the same bits.
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
  // `threads` includes the calling thread. It is at least 1.
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
  void EncodeAndUpdate(params::Encoding encoding, void* encoded, kernels::Buf next_residual,
                       kernels::Buf values, float scale, kernels::Buf residual,
                       const kernels::Rounding& rounding, float decay,
                       kernels::StreamKind stream) override;

 private:
  // ForRanges() cuts [0, n) into NumRanges() ranges, and calls body(begin, end, part) for each
  // range on the threads of the pool.
  // - `part` is the number of the range.
  // - Ranges begin at multiples of `grain`.
  // - `cost` is the cost of the whole loop, about 1 per element that is read or written. If it is
  //   high enough, there is one range per thread, otherwise fewer.
  using RangeBody = absl::FunctionRef<void(int64_t begin, int64_t end, int64_t part)>;
  int64_t NumRanges(int64_t n, int64_t grain, int64_t cost) const;
  void ForRanges(int64_t n, int64_t grain, int64_t cost, RangeBody body);
  // Returns scratch memory of at least `elements` elements, valid until the next call. The memory
  // grows only in the first calls with a new shape.
  float* Scratch(int64_t elements);
  // Adds up the rows of parts[num_parts][columns] in order. `accumulate` says whether the sums are
  // added to out[columns], or out is set to them.
  void CombineParts(float* out, const float* parts, int64_t num_parts, int64_t part_stride,
                    int64_t columns, kernels::Accumulate accumulate);
  // Runs a matrix product on the calling thread. Calls that run at the same time must have
  // different lanes, because each lane has its own packing memory. `lane` is a part of ForRanges()
  // or the index of a thread of the pool.
  void Gemm(const simd::GemmShape& shape, float alpha, const float* a, const float* b, float* c,
            bool add, int64_t lane) {
    loops_.gemm(shape, alpha, a, b, c, add, pack_.get() + lane * simd::kGemmPackElements);
  }
  // Computes C[m,n] = op(A) op(B), or adds the product to C. Each thread computes some rows of C if
  // m >= n, otherwise some columns.
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
