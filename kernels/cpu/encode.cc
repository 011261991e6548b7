// Wire encodings. Threads share whole blocks, which are encoded alike wherever a vector is cut.
#include "kernels/buffer_checks.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/cpu/cpu_device.h"

namespace lodestar {
namespace {

// Of an element, in units of ForRanges().
constexpr int64_t kCost = 2;

const float* From(Buf buf, int64_t begin) { return buf ? buf.as<const float>() + begin : nullptr; }

}  // namespace

void CpuDevice::Encode(Encoding encoding, void* encoded, Buf values, float scale, Buf residual,
                       const RoundingNoise& noise, StreamKind) {
  CheckEncoding(encoding, encoded, values);
  CheckOptionalBuf(residual, DType::kF32, values.num_elements);
  const int64_t n = values.num_elements;
  ForRanges(n, kInt8Block, kCost * n, [&](int64_t begin, int64_t end, int64_t) {
    RoundingNoise from_begin = noise;
    from_begin.first_element += begin;
    EncodeWithResidual(encoding, From(values, begin), scale, From(residual, begin), end - begin,
                       from_begin,
                       static_cast<std::byte*>(encoded) + EncodedBytes(encoding, begin));
  });
}

void CpuDevice::UpdateResidual(Encoding encoding, Buf residual, Buf values, float scale,
                               const void* encoded, StreamKind) {
  CheckEncoding(encoding, encoded, values);
  CheckBuf(residual, DType::kF32, values.num_elements);
  const int64_t n = values.num_elements;
  ForRanges(n, kInt8Block, kCost * n, [&](int64_t begin, int64_t end, int64_t) {
    lodestar::UpdateResidual(encoding, From(values, begin), scale,
                             static_cast<const std::byte*>(encoded) + EncodedBytes(encoding, begin),
                             end - begin, residual.as<float>() + begin);
  });
}

}  // namespace lodestar
