// SPDX-License-Identifier: Apache-2.0

// Implements the memory and events of the CPU device, and how it shares work among threads.
#include "kernels/cpu/cpu_device.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/machine/host_memory.h"
#include "common/runtime/check.h"

namespace lodestar::cpu {
namespace {

// Minimum cost of a range of ForRanges(), in the unit of its `cost`. With smaller ranges, sharing a
// loop among threads takes longer than running it on one thread.
constexpr int64_t kMinRangeCost = 16 * 1024;
constexpr int64_t kAlignment = 64;

}  // namespace

CpuDevice::CpuDevice(int threads, const simd::Loops& loops) : loops_(loops), pool_(threads) {
  pack_ = AllocateFloats(threads * simd::kGemmPackElements);
  capabilities_.name =
      absl::StrCat("cpu (", loops.name, ", ", threads, threads == 1 ? " thread)" : " threads)");
  capabilities_.compute = kernels::DType::kF32;
  const machine::HostMemory memory = machine::ReadHostMemory();
  capabilities_.memory_bytes = static_cast<size_t>(memory.total_bytes);
  capabilities_.memory_limited_by = memory.limited_by;
}

const kernels::DeviceCapabilities& CpuDevice::capabilities() const { return capabilities_; }

absl::StatusOr<void*> CpuDevice::Allocate(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, std::max<size_t>(bytes, 1)) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("the cpu device could not allocate ", bytes,
                                                     " bytes; use a smaller model or batch"));
  }
  return memory;
}

void CpuDevice::Release(void* memory) { std::free(memory); }
size_t CpuDevice::FreeMemoryBytes() {
  return static_cast<size_t>(machine::ReadHostMemory().available_bytes);
}
absl::StatusOr<void*> CpuDevice::AllocateHost(size_t bytes) { return Allocate(bytes); }
void CpuDevice::ReleaseHost(void* memory) { std::free(memory); }

kernels::EventId CpuDevice::Record(kernels::StreamKind /*stream*/) { return ++num_events_; }
void CpuDevice::Wait(kernels::StreamKind /*stream*/, kernels::EventId event) {
  LODESTAR_CHECK(event <= num_events_);
}
absl::Status CpuDevice::Synchronize(kernels::EventId event) {
  LODESTAR_CHECK(event <= num_events_);
  return absl::OkStatus();
}

int64_t CpuDevice::NumRanges(int64_t n, int64_t grain, int64_t cost) const {
  const int64_t grains = (n + grain - 1) / grain;
  return std::clamp<int64_t>(std::min(grains, cost / kMinRangeCost), 1, pool_.num_threads());
}

void CpuDevice::ForRanges(int64_t n, int64_t grain, int64_t cost, RangeBody body) {
  if (n == 0) return;
  const int64_t ranges = NumRanges(n, grain, cost);
  const int64_t grains = (n + grain - 1) / grain;
  pool_.Run(ranges, [&](int64_t part, int) {
    const int64_t begin = grains * part / ranges * grain;
    const int64_t end = std::min(n, grains * (part + 1) / ranges * grain);
    body(begin, end, part);
  });
}

CpuDevice::AlignedFloats CpuDevice::AllocateFloats(int64_t elements) {
  void* memory = nullptr;
  LODESTAR_CHECK(posix_memalign(&memory, kAlignment, elements * sizeof(float)) == 0)
      << "no memory for " << elements << " elements of scratch";
  return AlignedFloats(static_cast<float*>(memory));
}

float* CpuDevice::Scratch(int64_t elements) {
  if (elements > scratch_elements_) {
    scratch_ = AllocateFloats(elements);
    scratch_elements_ = elements;
  }
  return scratch_.get();
}

void CpuDevice::CombineParts(float* out, const float* parts, int64_t num_parts, int64_t part_stride,
                             int64_t columns, kernels::Accumulate accumulate) {
  int64_t part = 0;
  if (accumulate == kernels::Accumulate::kSet) {
    std::memcpy(out, parts, columns * sizeof(float));
    part = 1;
  }
  for (; part < num_parts; ++part) loops_.add(out, out, parts + part * part_stride, columns);
}

std::unique_ptr<kernels::Device> MakeCpuDevice(int threads) {
  return std::make_unique<CpuDevice>(threads, simd::BestLoops());
}

}  // namespace lodestar::cpu
