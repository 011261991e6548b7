#include "kernels/codec/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/codec/codec_loops.h"
#include "kernels/reduce.h"

namespace lodestar {
namespace {

class Fp32Codec final : public Codec {
 public:
  Encoding encoding() const override { return Encoding::kFp32; }
  void Encode(const float* values, int64_t n, const RoundingNoise& /*noise*/,
              std::byte* encoded) const override {
    std::copy_n(reinterpret_cast<const std::byte*>(values), n * sizeof(float), encoded);
  }
  void Decode(const std::byte* encoded, int64_t n, float* values) const override {
    std::copy_n(encoded, n * sizeof(float), reinterpret_cast<std::byte*>(values));
  }
  bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const override {
    return AllBelow(reinterpret_cast<const float*>(encoded), limit, n);
  }
};

class Bf16Codec final : public Codec {
 public:
  Encoding encoding() const override { return Encoding::kBf16; }
  void Encode(const float* values, int64_t n, const RoundingNoise& /*noise*/,
              std::byte* encoded) const override {
    codec::BestLoops().to_bf16(values, reinterpret_cast<codec::Code16*>(encoded), n);
  }
  void Decode(const std::byte* encoded, int64_t n, float* values) const override {
    codec::BestLoops().from_bf16(reinterpret_cast<const codec::Code16*>(encoded), values, n);
  }
  bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const override {
    // The upper half of the bits: rounded down.
    const auto code = static_cast<uint16_t>(std::bit_cast<uint32_t>(limit) >> 16);
    return codec::BestLoops().all_below16(reinterpret_cast<const codec::Code16*>(encoded), code, n);
  }
};

class Fp16Codec final : public Codec {
 public:
  Encoding encoding() const override { return Encoding::kFp16; }
  void Encode(const float* values, int64_t n, const RoundingNoise& /*noise*/,
              std::byte* encoded) const override {
    codec::BestLoops().to_fp16(values, reinterpret_cast<codec::Code16*>(encoded), n);
  }
  void Decode(const std::byte* encoded, int64_t n, float* values) const override {
    codec::BestLoops().from_fp16(reinterpret_cast<const codec::Code16*>(encoded), values, n);
  }
  bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const override {
    // What is beyond the range of the encoding is its largest value; infinity comes after it. A
    // limit that is rounded up lies above the code before it.
    codec::Code16 code = kInfinity;
    constexpr float kBeyondAll = 65536.0f;
    if (limit < kBeyondAll) codec::BestLoops().to_fp16(&limit, &code, 1);
    return codec::BestLoops().all_below16(reinterpret_cast<const codec::Code16*>(encoded), code, n);
  }

 private:
  static constexpr uint16_t kInfinity = 0x7C00;
};

constexpr int kLargestCode = 127;

// Of a block whose largest magnitude has these bits. 0: all of it is taken as zeros.
float ScaleFor(uint32_t largest_bits) {
  const float largest = std::bit_cast<float>(largest_bits);
  if (!std::isfinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  // The scale would be subnormal and its inverse infinite.
  if (largest < kLargestCode * std::numeric_limits<float>::min()) return 0.0f;
  const float scale = largest / kLargestCode;
  return std::isfinite(kLargestCode * scale) ? scale : std::nextafter(scale, 0.0f);
}

class Int8Codec final : public Codec {
 public:
  Encoding encoding() const override { return Encoding::kInt8; }

  void Encode(const float* values, int64_t n, const RoundingNoise& noise,
              std::byte* encoded) const override {
    const codec::Loops& loops = codec::BestLoops();
    // A block's words, and those of Philox blocks that it shares with its neighbours.
    constexpr int64_t kPhiloxBlocks = kInt8Block / 4 + 16;
    uint32_t words[4 * kPhiloxBlocks];
    for (int64_t begin = 0; begin < n; begin += kInt8Block) {
      const int64_t size = std::min(kInt8Block, n - begin);
      const float scale = ScaleFor(loops.max_magnitude(values + begin, size));
      auto* const codes = reinterpret_cast<int8_t*>(encoded + sizeof(float));
      std::memcpy(encoded, &scale, sizeof(float));
      if (scale > 0.0f) {
        const uint64_t first = static_cast<uint64_t>(noise.first_element + begin);
        const int64_t blocks = (first % 4 + size + 3) / 4;
        loops.philox(noise.key, noise.stream, first / 4, (blocks + 15) / 16 * 16, words);
        loops.quantize(values + begin, 1.0f / scale, words + first % 4, codes, size);
      } else {
        std::memset(codes, 0, size);
      }
      encoded += EncodedBytes(Encoding::kInt8, size);
    }
  }

  void Decode(const std::byte* encoded, int64_t n, float* values) const override {
    for (int64_t begin = 0; begin < n; begin += kInt8Block) {
      const int64_t size = std::min(kInt8Block, n - begin);
      float scale = 0.0f;
      std::memcpy(&scale, encoded, sizeof(float));
      codec::BestLoops().dequantize(reinterpret_cast<const int8_t*>(encoded + sizeof(float)), scale,
                                    values + begin, size);
      encoded += EncodedBytes(Encoding::kInt8, size);
    }
  }

  bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const override {
    // Of any code, -128 included, which we never send.
    constexpr float kLargestMagnitude = 128.0f;
    bool is_below = true;
    for (int64_t begin = 0; begin < n; begin += kInt8Block) {
      float scale = 0.0f;
      std::memcpy(&scale, encoded + EncodedBytes(Encoding::kInt8, begin), sizeof(float));
      is_below = is_below && std::abs(kLargestMagnitude * scale) < limit;
    }
    return is_below;
  }
};

}  // namespace

const Codec& CodecOf(Encoding encoding) {
  static const Fp32Codec fp32;
  static const Bf16Codec bf16;
  static const Fp16Codec fp16;
  static const Int8Codec int8;
  switch (encoding) {
    case Encoding::kFp32:
      return fp32;
    case Encoding::kBf16:
      return bf16;
    case Encoding::kFp16:
      return fp16;
    case Encoding::kInt8:
      return int8;
  }
  return fp32;
}

}  // namespace lodestar
