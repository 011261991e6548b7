// SPDX-License-Identifier: Apache-2.0

#include "kernels/codec/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/codec/codec_loops.h"
#include "kernels/codec/topk_codec.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::codec {
namespace {

class Fp32Codec final : public Codec {
 public:
  params::Encoding encoding() const override { return params::Encoding::kFp32; }
  void Encode(const float* values, int64_t n, const kernels::Rounding& /*rounding*/,
              std::byte* encoded) const override {
    std::copy_n(reinterpret_cast<const std::byte*>(values), n * sizeof(float), encoded);
  }
  void Decode(const std::byte* encoded, int64_t n, float* values) const override {
    std::copy_n(encoded, n * sizeof(float), reinterpret_cast<std::byte*>(values));
  }
  bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const override {
    return vectors::AllBelow(reinterpret_cast<const float*>(encoded), limit, n);
  }
};

class Bf16Codec final : public Codec {
 public:
  params::Encoding encoding() const override { return params::Encoding::kBf16; }
  void Encode(const float* values, int64_t n, const kernels::Rounding& /*rounding*/,
              std::byte* encoded) const override {
    codec::BestLoops().to_bf16(values, reinterpret_cast<codec::Code16*>(encoded), n);
  }
  void Decode(const std::byte* encoded, int64_t n, float* values) const override {
    codec::BestLoops().from_bf16(reinterpret_cast<const codec::Code16*>(encoded), values, n);
  }
  bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const override {
    // `code` is `limit` rounded down to bf16. A code is certainly below `limit` if it is below
    // `code`.
    const auto code = static_cast<uint16_t>(std::bit_cast<uint32_t>(limit) >> 16);
    return codec::BestLoops().all_below16(reinterpret_cast<const codec::Code16*>(encoded), code, n);
  }
};

class Fp16Codec final : public Codec {
 public:
  params::Encoding encoding() const override { return params::Encoding::kFp16; }
  void Encode(const float* values, int64_t n, const kernels::Rounding& /*rounding*/,
              std::byte* encoded) const override {
    codec::BestLoops().to_fp16(values, reinterpret_cast<codec::Code16*>(encoded), n);
  }
  void Decode(const std::byte* encoded, int64_t n, float* values) const override {
    codec::BestLoops().from_fp16(reinterpret_cast<const codec::Code16*>(encoded), values, n);
  }
  bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const override {
    // If `limit` is 65536 or more, every finite code is below it. Otherwise `limit` is rounded to
    // the nearest code. A code below the rounded limit is also below `limit`, because no code lies
    // between the two.
    codec::Code16 code = kInfinity;
    constexpr float kBeyondAll = 65536.0f;
    if (limit < kBeyondAll) codec::BestLoops().to_fp16(&limit, &code, 1);
    return codec::BestLoops().all_below16(reinterpret_cast<const codec::Code16*>(encoded), code, n);
  }

 private:
  static constexpr uint16_t kInfinity = 0x7C00;
};

// Returns the scale of a block whose largest magnitude has the bits `largest_bits`. 0 means that
// the whole block is encoded as zeros. `rounded` rounds the scale to the type that is encoded.
// `below` returns the next lower scale, which is used if the largest code would decode to infinity.
template <typename Rounded, typename Below>
float ScaleFor(uint32_t largest_bits, int largest_code, Rounded rounded, Below below) {
  const auto most = static_cast<float>(largest_code);
  const float largest = std::bit_cast<float>(largest_bits);
  if (!std::isfinite(largest)) return std::numeric_limits<float>::quiet_NaN();
  // Returns 0 if the scale would be subnormal, because its inverse would be infinite.
  if (largest < most * std::numeric_limits<float>::min()) return 0.0f;
  const float scale = rounded(largest / most);
  return std::isfinite(most * scale) ? scale : below(scale);
}

// Describes the bytes of a block of int8: an fp32 scale, then one byte per code.
struct Int8Format {
  static constexpr params::Encoding kEncoding = params::Encoding::kInt8;
  static constexpr int64_t kBlock = params::kInt8Block;
  static constexpr int kLargestCode = 127;
  // Largest magnitude of a code. Received bytes may contain -128, which our encoder never makes.
  static constexpr float kLargestMagnitude = 128.0f;
  static constexpr int64_t kScaleBytes = sizeof(float);

  static float ScaleOf(uint32_t largest_bits) {
    return ScaleFor(
        largest_bits, kLargestCode, [](float scale) { return scale; },
        [](float scale) { return std::nextafter(scale, 0.0f); });
  }
  static void WriteScale(float scale, std::byte* to) { std::memcpy(to, &scale, sizeof(scale)); }
  static float ReadScale(const std::byte* from) {
    float scale = 0.0f;
    std::memcpy(&scale, from, sizeof(scale));
    return scale;
  }
  // Encode() writes the codes directly to the encoded bytes, so WriteCodes() does nothing.
  static int8_t* CodesAt(std::byte* to, int8_t* /*space*/) { return reinterpret_cast<int8_t*>(to); }
  static void WriteCodes(const int8_t* /*codes*/, int64_t /*n*/, std::byte* /*to*/) {}
  static void Dequantize(const std::byte* codes, float scale, float* values, int64_t n) {
    codec::BestLoops().dequantize(reinterpret_cast<const int8_t*>(codes), scale, values, n);
  }
};

struct Int4Format {
  static constexpr params::Encoding kEncoding = params::Encoding::kInt4;
  static constexpr int64_t kBlock = params::kInt4Block;
  static constexpr int kLargestCode = 7;
  static constexpr float kLargestMagnitude = 8.0f;
  static constexpr int64_t kScaleBytes = sizeof(uint16_t);

  // The scale is rounded up to bf16, so that no element exceeds the largest code.
  static float ScaleOf(uint32_t largest_bits) {
    return ScaleFor(
        largest_bits, kLargestCode,
        [](float scale) {
          return std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + 0xFFFF) & 0xFFFF0000);
        },
        [](float scale) { return std::bit_cast<float>(std::bit_cast<uint32_t>(scale) - 0x10000); });
  }
  static void WriteScale(float scale, std::byte* to) {
    const auto code = static_cast<uint16_t>(std::bit_cast<uint32_t>(scale) >> 16);
    std::memcpy(to, &code, sizeof(code));
  }
  static float ReadScale(const std::byte* from) {
    uint16_t code = 0;
    std::memcpy(&code, from, sizeof(code));
    return std::bit_cast<float>(uint32_t{code} << 16);
  }
  // Encode() writes the codes of a block to `space`. WriteCodes() then packs them into the encoded
  // bytes, two codes in a byte.
  static int8_t* CodesAt(std::byte* /*to*/, int8_t* space) { return space; }
  static void WriteCodes(const int8_t* codes, int64_t n, std::byte* to) {
    codec::BestLoops().pack_halves(codes, reinterpret_cast<uint8_t*>(to), n);
  }
  static void Dequantize(const std::byte* codes, float scale, float* values, int64_t n) {
    codec::BestLoops().dequantize_halves(reinterpret_cast<const uint8_t*>(codes), scale, values, n);
  }
};

template <typename Format>
class BlockCodec final : public Codec {
 public:
  params::Encoding encoding() const override { return Format::kEncoding; }

  void Encode(const float* values, int64_t n, const kernels::Rounding& rounding,
              std::byte* encoded) const override {
    const codec::Loops& loops = codec::BestLoops();
    // Maximum number of Philox blocks for one block of elements. A Philox block has 4 random words,
    // one per element. 16 more are needed for two reasons: a block may begin inside a Philox block,
    // and philox() makes multiples of 16.
    constexpr int64_t kPhiloxBlocks = kBlock / 4 + 16;
    uint32_t words[4 * kPhiloxBlocks];
    const bool is_stochastic = rounding.kind == kernels::Rounding::Kind::kStochastic;
    int8_t space[kBlock];
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t size = std::min(kBlock, n - begin);
      const float scale = Format::ScaleOf(loops.max_magnitude(values + begin, size));
      Format::WriteScale(scale, encoded);
      int8_t* const codes = Format::CodesAt(encoded + Format::kScaleBytes, space);
      if (!(scale > 0.0f)) {
        std::memset(codes, 0, size);
      } else if (is_stochastic) {
        const uint64_t first = static_cast<uint64_t>(rounding.first_element + begin);
        const int64_t blocks = (first % 4 + size + 3) / 4;
        loops.philox(rounding.key, rounding.stream, first / 4, (blocks + 15) / 16 * 16, words);
        loops.quantize(values + begin, 1.0f / scale, words + first % 4, Format::kLargestCode, codes,
                       size);
      } else {
        loops.quantize_to_nearest(values + begin, 1.0f / scale, Format::kLargestCode, codes, size);
      }
      Format::WriteCodes(codes, size, encoded + Format::kScaleBytes);
      encoded += params::EncodedBytes(Format::kEncoding, size);
    }
  }

  void Decode(const std::byte* encoded, int64_t n, float* values) const override {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t size = std::min(kBlock, n - begin);
      Format::Dequantize(encoded + Format::kScaleBytes, Format::ReadScale(encoded), values + begin,
                         size);
      encoded += params::EncodedBytes(Format::kEncoding, size);
    }
  }

  bool IsSurelyBelow(const std::byte* encoded, float limit, int64_t n) const override {
    bool is_below = true;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const float scale =
          Format::ReadScale(encoded + params::EncodedBytes(Format::kEncoding, begin));
      is_below = is_below && std::abs(Format::kLargestMagnitude * scale) < limit;
    }
    return is_below;
  }

 private:
  static constexpr int64_t kBlock = Format::kBlock;
};

}  // namespace

const Codec& CodecOf(params::Encoding encoding) {
  static const Fp32Codec fp32;
  static const Bf16Codec bf16;
  static const Fp16Codec fp16;
  static const BlockCodec<Int8Format> int8;
  static const BlockCodec<Int4Format> int4;
  switch (encoding.kind()) {
    case params::Encoding::Kind::kFp32:
      return fp32;
    case params::Encoding::Kind::kBf16:
      return bf16;
    case params::Encoding::Kind::kFp16:
      return fp16;
    case params::Encoding::Kind::kInt8:
      return int8;
    case params::Encoding::Kind::kInt4:
      return int4;
    case params::Encoding::Kind::kTopK2:
    case params::Encoding::Kind::kTopK4:
      return TopKCodecOf(encoding);
  }
  return fp32;
}

}  // namespace lodestar::codec
