#include "kernels/cpu/cpu_device.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/host_memory.h"
#include "kernels/buffer_checks.h"

namespace lodestar {
namespace {

// Elements that one thread should at least have to itself: a loop shared for less is slower than
// one that is not.
constexpr int64_t kMinRangeCost = 16 * 1024;
constexpr int64_t kSumBlock = 64 * 1024;
constexpr int64_t kAlignment = 64;

}  // namespace

CpuDevice::CpuDevice(int threads, const simd::Loops& loops) : loops_(loops), pool_(threads) {
  pack_ = AllocateFloats(threads * simd::kGemmPackElements);
  capabilities_.name =
      absl::StrCat("cpu (", loops.name, ", ", threads, threads == 1 ? " thread)" : " threads)");
  capabilities_.compute = DType::kF32;
  const HostMemory memory = ReadHostMemory();
  capabilities_.memory_bytes = static_cast<size_t>(memory.total_bytes);
  capabilities_.memory_limited_by = memory.limited_by;
}

const DeviceCapabilities& CpuDevice::capabilities() const { return capabilities_; }

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
  return static_cast<size_t>(ReadHostMemory().available_bytes);
}
absl::StatusOr<void*> CpuDevice::AllocateHost(size_t bytes) { return Allocate(bytes); }
void CpuDevice::ReleaseHost(void* memory) { std::free(memory); }

EventId CpuDevice::Record(StreamKind /*stream*/) { return ++num_events_; }
void CpuDevice::Wait(StreamKind /*stream*/, EventId event) { LODESTAR_CHECK(event <= num_events_); }
absl::Status CpuDevice::Synchronize(EventId event) {
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
                             int64_t columns, Accumulate accumulate) {
  int64_t part = 0;
  if (accumulate == Accumulate::kSet) {
    std::memcpy(out, parts, columns * sizeof(float));
    part = 1;
  }
  for (; part < num_parts; ++part) loops_.add(out, out, parts + part * part_stride, columns);
}

void CpuDevice::Copy(void* destination, const void* source, size_t bytes, StreamKind) {
  if (bytes > 0) std::memcpy(destination, source, bytes);
}

void CpuDevice::AddScaled(Buf y, Buf x, double a) {
  CheckBuf(x, DType::kF32, x.num_elements);
  CheckBuf(y, DType::kF32, x.num_elements);
  ForRanges(x.num_elements, 16, x.num_elements, [&](int64_t begin, int64_t end, int64_t) {
    loops_.add_scaled(y.as<float>() + begin, x.as<float>() + begin, static_cast<float>(a),
                      end - begin);
  });
}

void CpuDevice::Subtract(Buf z, Buf x, Buf y) {
  for (const Buf& buf : {x, y, z}) CheckBuf(buf, DType::kF32, z.num_elements);
  ForRanges(z.num_elements, 16, z.num_elements, [&](int64_t begin, int64_t end, int64_t) {
    loops_.subtract(z.as<float>() + begin, x.as<float>() + begin, y.as<float>() + begin,
                    end - begin);
  });
}

// Blocks of a fixed size, summed in order: the number of threads does not matter.
void CpuDevice::SumOfSquares(Buf sum, Buf x) {
  CheckBuf(sum, DType::kF64, 1);
  CheckBuf(x, DType::kF32, x.num_elements);
  const int64_t blocks = (x.num_elements + kSumBlock - 1) / kSumBlock;
  double* block_sums = reinterpret_cast<double*>(Scratch(2 * blocks));
  ForRanges(blocks, 1, x.num_elements, [&](int64_t begin, int64_t end, int64_t) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kSumBlock;
      block_sums[block] =
          loops_.sum_of_squares(x.as<float>() + first, std::min(kSumBlock, x.num_elements - first));
    }
  });
  double total = 0.0;
  for (int64_t block = 0; block < blocks; ++block) total += block_sums[block];
  sum.as<double>()[0] = total;
}

std::unique_ptr<Device> MakeCpuDevice(int threads) {
  return std::make_unique<CpuDevice>(threads, simd::BestLoops());
}

}  // namespace lodestar
