// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/codec.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "common/params/encoding.h"
#include "gtest/gtest.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/cuda/testing/kernel_test_rig.h"
#include "kernels/cuda/topk_codec.h"
#include "kernels/operation_arguments.h"

namespace lodestar::cuda {
namespace {

constexpr float kDecay = 0.95f;

// Returns random values, except in seven blocks of 256. Their values are: zeros; numbers that are
// too small for int8 and int4, or subnormal in fp16; ties; the largest numbers; Inf; and NaN.
std::vector<float> Values(int64_t n) {
  std::vector<float> values = Noises<float>(n, 1);
  const auto set = [&](int64_t block, int64_t i, float value) {
    if (block * 256 + i < n) values[block * 256 + i] = value;
  };
  for (int64_t i = 0; i < 256; ++i) {
    set(1, i, 0.0f);
    set(2, i, 1e-40f * static_cast<float>(i));
    set(3, i, values[i % n] * (i % 2 == 0 ? 1e-20f : 1e-5f));
    // These values are halfway between two neighbours in bf16 (even i) or in fp16 (odd i).
    set(4, i, 1.0f + static_cast<float>(2 * i + 1) * (i % 2 == 0 ? 0x1p-8f : 0x1p-11f));
  }
  set(5, 7, std::numeric_limits<float>::max());
  set(5, 8, -std::numeric_limits<float>::max());
  set(5, 9, 65519.0f);
  set(5, 10, 65520.0f);
  set(6, 255, -INFINITY);
  set(7, 0, NAN);
  return values;
}

struct Result {
  std::vector<std::byte> bytes;
  std::vector<float> residual;
};

Result OnHost(params::Encoding encoding, const std::vector<float>& values, float scale,
              const std::vector<float>& residual, const kernels::Rounding& rounding) {
  const int64_t n = static_cast<int64_t>(values.size());
  Result result{std::vector<std::byte>(params::EncodedBytes(encoding, n)), residual};
  float* const memory = residual.empty() ? nullptr : result.residual.data();
  codec::EncodeWithResidual(encoding, values.data(), scale, memory, n, rounding,
                            result.bytes.data());
  if (memory != nullptr) {
    codec::UpdateResidual(encoding, values.data(), scale, result.bytes.data(), n, kDecay, memory);
  }
  return result;
}

cudaError_t Encode(params::Encoding encoding, void* encoded, const CodecInput& input,
                   const kernels::Rounding& rounding, cudaStream_t stream) {
  auto* const codes = static_cast<uint16_t*>(encoded);
  if (encoding == params::Encoding::kBf16) return EncodeBf16(codes, input, stream);
  if (encoding == params::Encoding::kFp16) return EncodeFp16(codes, input, stream);
  if (encoding == params::Encoding::kInt8) return EncodeInt8(encoded, input, rounding, stream);
  if (encoding.is_topk()) {
    return EncodeTopK(encoded, input, {encoding.topk(), encoding.topk_bits()}, stream);
  }
  return EncodeInt4(encoded, input, rounding, stream);
}

cudaError_t Lost(params::Encoding encoding, float* lost, const CodecInput& input,
                 const void* encoded, cudaStream_t stream) {
  const auto* const codes = static_cast<const uint16_t*>(encoded);
  if (encoding == params::Encoding::kBf16) return LostInBf16(lost, input, codes, kDecay, stream);
  if (encoding == params::Encoding::kFp16) return LostInFp16(lost, input, codes, kDecay, stream);
  if (encoding == params::Encoding::kInt8) return LostInInt8(lost, input, encoded, kDecay, stream);
  if (encoding.is_topk()) {
    return LostInTopK(lost, input, {encoding.topk(), encoding.topk_bits()}, encoded, kDecay,
                      stream);
  }
  return LostInInt4(lost, input, encoded, kDecay, stream);
}

Result OnCard(params::Encoding encoding, const std::vector<float>& values, float scale,
              const std::vector<float>& residual, const kernels::Rounding& rounding,
              int64_t offset) {
  const int64_t n = static_cast<int64_t>(values.size());
  const size_t size = params::EncodedBytes(encoding, n);
  // The result has the encoded bytes, then the residual.
  const std::vector<std::byte> all = InBothOrders([&](KernelTestRig& rig) {
    std::vector<float> shifted(offset + n);
    std::copy(values.begin(), values.end(), shifted.begin() + offset);
    float* const on_card = residual.empty() ? nullptr : rig.Upload(residual);
    const CodecInput input{rig.Upload(shifted) + offset, scale, on_card, n};
    std::byte* encoded = rig.Allocate<std::byte>(size);
    EXPECT_EQ(Encode(encoding, encoded, input, rounding, rig.stream()), cudaSuccess);
    if (on_card != nullptr) {
      EXPECT_EQ(Lost(encoding, on_card, input, encoded, rig.stream()), cudaSuccess);
    }
    std::vector<std::byte> result = rig.Download(encoded, size);
    const std::vector<std::byte> lost =
        rig.Download(reinterpret_cast<std::byte*>(on_card), residual.size() * sizeof(float));
    result.insert(result.end(), lost.begin(), lost.end());
    return result;
  });
  Result result{{all.begin(), all.begin() + size}, std::vector<float>(residual.size())};
  std::memcpy(result.residual.data(), all.data() + size, residual.size() * sizeof(float));
  return result;
}

// Expects NaN where `want` is NaN, and the same bits elsewhere.
void ExpectSameNumbers(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    ASSERT_EQ(std::memcmp(&got[i], &want[i], sizeof(float)), 0)
        << i << ": got " << got[i] << ", want " << want[i];
  }
}

void ExpectSame(params::Encoding encoding, int64_t n, float scale, bool has_residual,
                const kernels::Rounding& rounding, int64_t offset) {
  const std::vector<float> values = Values(n);
  const std::vector<float> residual = Noises<float>(has_residual ? n : 0, 2);
  const Result want = OnHost(encoding, values, scale, residual, rounding);
  const Result got = OnCard(encoding, values, scale, residual, rounding, offset);
  ExpectSameNumbers(got.residual, want.residual);
  EXPECT_EQ(got.bytes, want.bytes) << params::EncodingText(encoding) << " of " << n;
}

constexpr params::Encoding kEncodings[] = {
    params::Encoding::kBf16,      params::Encoding::kFp16,        params::Encoding::kInt8,
    params::Encoding::kInt4,      params::Encoding::TopK(64, 2),  params::Encoding::TopK(64, 4),
    params::Encoding::TopK(1, 2), params::Encoding::TopK(1023, 4)};

TEST(CodecTest, KnowsTheSizesOfBlocks) {
  for (int64_t n : {0, 1, 127, 128, 129, 255, 256, 257, 1000}) {
    EXPECT_EQ(Int8EncodedBytes(n), params::EncodedBytes(params::Encoding::kInt8, n));
    EXPECT_EQ(Int4EncodedBytes(n), params::EncodedBytes(params::Encoding::kInt4, n));
  }
  for (int bits : {2, 4}) {
    for (int kept = 1; kept <= kMostKept; ++kept) {
      EXPECT_EQ((TopKFormat{kept, bits}.BlockBytes(kept)),
                params::EncodedBytes(params::Encoding::TopK(kept, bits), kTopKBlockElements));
    }
  }
}

TEST(CodecTest, TakesNothingAsWell) {
  const CodecInput nothing = {nullptr, 1.0f, nullptr, 0};
  for (params::Encoding encoding : kEncodings) {
    EXPECT_EQ(Encode(encoding, nullptr, nothing, {}, nullptr), cudaSuccess);
    EXPECT_EQ(Lost(encoding, nullptr, nothing, nullptr, nullptr), cudaSuccess);
  }
}

TEST(CodecTest, GivesTheBytesOfTheHost) {
  for (params::Encoding encoding : kEncodings) {
    for (int64_t n : {1, 3, 127, 128, 129, 255, 256, 257, 1000, 2 * 2048 + 5}) {
      for (bool has_residual : {false, true}) {
        // With a scale of 1, one block contains the largest fp32 number. With a scale of 0.37, no
        // block contains it.
        for (float scale : {1.0f, 0.37f}) {
          for (kernels::Rounding::Kind kind :
               {kernels::Rounding::Kind::kStochastic, kernels::Rounding::Kind::kToNearest}) {
            ExpectSame(encoding, n, scale, has_residual,
                       {.kind = kind, .key = 7, .stream = 9, .first_element = 512}, 0);
          }
        }
      }
    }
  }
}

TEST(CodecTest, GivesTheBytesOfTheHostAtOddAddressesAndPositions) {
  for (params::Encoding encoding : kEncodings) {
    for (int64_t first : {int64_t{0}, int64_t{3}, int64_t{0x7fff'ffff'fffe}}) {
      ExpectSame(encoding, 777, 0.37f, true,
                 {.key = ~uint64_t{0}, .stream = 1, .first_element = first},
                 /*offset=*/1);
    }
  }
}

// Values() contains NaN and Inf, so a top-k block of these values would be NaN throughout. So this
// test makes its own vectors.
TEST(CodecTest, KeepsTheSameElementsAsTheHostOfWholeBlocksAndTies) {
  for (const params::Encoding encoding : kEncodings) {
    if (!encoding.is_topk()) continue;
    std::vector<std::vector<float>> vectors = {Noises<float>(2 * 4096 + 777, 3),
                                               Noises<float>(4096, 4)};
    // The vectors are: a few different magnitudes, so that many are equal; only equal magnitudes; a
    // single element that is not 0; very small magnitudes.
    for (float& value : vectors.emplace_back(Noises<float>(5000, 5))) {
      value = std::round(value * 2.0f) * 0.25f;
    }
    vectors.emplace_back(4096 + 3, -0.125f);
    vectors.emplace_back(4096, 0.0f)[4000] = -3.0f;
    for (float& value : vectors.emplace_back(Noises<float>(4096, 6))) value *= 0x1p-99f;
    for (float& value : vectors.emplace_back(Noises<float>(4096, 7))) value *= 0x1p-110f;
    // All magnitudes are the largest fp32 number.
    for (float& value : vectors.emplace_back(Noises<float>(4096, 8))) {
      value = std::copysign(std::numeric_limits<float>::max(), value);
    }
    for (size_t i = 0; i < vectors.size(); ++i) {
      const Result want = OnHost(encoding, vectors[i], 1.0f, {}, {});
      const Result got = OnCard(encoding, vectors[i], 1.0f, {}, {}, 0);
      EXPECT_EQ(got.bytes, want.bytes) << params::EncodingText(encoding) << ", vector " << i;
      const std::vector<float> residual = Noises<float>(static_cast<int64_t>(vectors[i].size()), 9);
      const Result want_lost = OnHost(encoding, vectors[i], 0.37f, residual, {});
      const Result got_lost = OnCard(encoding, vectors[i], 0.37f, residual, {}, 1);
      EXPECT_EQ(got_lost.bytes, want_lost.bytes)
          << params::EncodingText(encoding) << ", vector " << i;
      ExpectSameNumbers(got_lost.residual, want_lost.residual);
    }
  }
}

}  // namespace
}  // namespace lodestar::cuda
