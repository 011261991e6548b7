#include "kernels/buffer_checks.h"
#include "kernels/cpu/cpu_device.h"

namespace lodestar {
namespace {

// One block of the generator gives the words of this many elements.
constexpr int64_t kLanes = 4;
// A block costs as much as touching this many elements.
constexpr int64_t kCostPerElement = 16;

}  // namespace

void CpuDevice::Dropout(Buf y, Buf x, const DropoutMask& mask) {
  const int64_t n = x.num_elements;
  LODESTAR_CHECK(mask.rate >= 0.0 && mask.rate < 1.0) << "rate=" << mask.rate;
  LODESTAR_CHECK(mask.first_element >= 0);
  CheckBuf(x, DType::kF32, n);
  CheckBuf(y, DType::kF32, n);
  const uint32_t threshold = DropoutThreshold(mask.rate);
  const float scale = static_cast<float>(DropoutScale(mask.rate));
  ForRanges(n, 16, kCostPerElement * n, [&](int64_t begin, int64_t end, int64_t) {
    int64_t i = begin;
    while (i < end) {
      const int64_t element = mask.first_element + i;
      const PhiloxWords words = DropoutWords(mask, element / kLanes);
      for (int64_t lane = element % kLanes; lane < kLanes && i < end; ++lane, ++i) {
        y.as<float>()[i] = words.word[lane] >= threshold ? x.as<float>()[i] * scale : 0.0f;
      }
    }
  });
}

}  // namespace lodestar
