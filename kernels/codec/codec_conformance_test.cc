// SPDX-License-Identifier: Apache-2.0

// Tests the rules that every codec must follow.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "common/runtime/random.h"
#include "gtest/gtest.h"
#include "kernels/codec/codec.h"
#include "kernels/codec/codec_loops.h"
#include "kernels/codec/encoded_vectors.h"
#include "kernels/vectors/reduce.h"

namespace lodestar::codec {

std::ostream& operator<<(std::ostream& out, params::Encoding encoding) {
  return out << params::EncodingText(encoding);
}

namespace {

using Bytes = std::vector<std::byte>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
// Numbers of elements. Many are just below, at or just above the size of a block of an encoding.
constexpr int64_t kSizes[] = {0,   1,   2,   3,   15,  16,  17,  127,  128,  129,  255,   256,
                              257, 383, 511, 512, 513, 777, 999, 4095, 4096, 4097, 10007, 65536};

// Returns normally distributed values. Their scales differ by many orders of magnitude.
std::vector<float> Values(int64_t n, uint64_t seed) {
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) {
    const std::array<double, 4> normals = NormalsFrom(Philox(seed, 7, i));
    values[i] = static_cast<float>(normals[0] * std::exp(normals[1]) * 1e-3);
  }
  return values;
}

Bytes Encoded(params::Encoding encoding, const std::vector<float>& values,
              const kernels::Rounding& rounding) {
  Bytes bytes(params::EncodedBytes(encoding, static_cast<int64_t>(values.size())));
  CodecOf(encoding).Encode(values.data(), values.size(), rounding, bytes.data());
  return bytes;
}

std::vector<float> Decoded(params::Encoding encoding, const Bytes& bytes, int64_t n) {
  std::vector<float> values(n);
  CodecOf(encoding).Decode(bytes.data(), n, values.data());
  return values;
}

std::vector<float> RoundTrip(params::Encoding encoding, const std::vector<float>& values,
                             const kernels::Rounding& rounding = {}) {
  return Decoded(encoding, Encoded(encoding, values, rounding), values.size());
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

bool RoundsStochastically(params::Encoding encoding) {
  return encoding == params::Encoding::kInt8 || encoding == params::Encoding::kInt4;
}

float LargestOfBlock(params::Encoding encoding, const std::vector<float>& values, int64_t i) {
  const int64_t block = params::BlockElements(encoding);
  const int64_t begin = i / block * block;
  const int64_t end = std::min<int64_t>(begin + block, values.size());
  float largest = 0.0f;
  for (int64_t j = begin; j < end; ++j) largest = std::max(largest, std::abs(values[j]));
  return largest;
}

// Returns the largest error that element i may have after a round trip.
double Bound(params::Encoding encoding, const std::vector<float>& values, int64_t i) {
  switch (encoding.kind()) {
    case params::Encoding::Kind::kFp32:
      return 0.0;
    case params::Encoding::Kind::kBf16:
      return std::abs(values[i]) * 0x1p-8;
    case params::Encoding::Kind::kFp16:
      return std::max(std::abs(values[i]) * 0x1p-11, 0x1p-25);
    case params::Encoding::Kind::kInt8:
      return LargestOfBlock(encoding, values, i) / 127.0 * (1 + 1e-5);
    case params::Encoding::Kind::kInt4:
      // The scale is rounded up to bf16.
      return LargestOfBlock(encoding, values, i) / 7.0 * (1 + 0x1p-7);
    case params::Encoding::Kind::kTopK2:
    case params::Encoding::Kind::kTopK4:
      // This bound is larger than necessary. TopKCodecTest has a smaller bound.
      return LargestOfBlock(encoding, values, i);
  }
  return 0.0;
}

class CodecConformanceTest : public testing::TestWithParam<params::Encoding> {};

TEST_P(CodecConformanceTest, RoundTripIsWithinTheBound) {
  for (int64_t n : kSizes) {
    const std::vector<float> values = Values(n, 1);
    const std::vector<float> back = RoundTrip(GetParam(), values);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_LE(std::abs(static_cast<double>(back[i]) - values[i]), Bound(GetParam(), values, i))
          << i << " of " << n << ": " << values[i] << " became " << back[i];
    }
  }
}

TEST_P(CodecConformanceTest, WritesItsBytesAndNoMore) {
  for (int64_t n : kSizes) {
    const int64_t size = params::EncodedBytes(GetParam(), n);
    const std::vector<float> values = Values(n, 2);
    Bytes bytes(size + 1, std::byte{0xA5});
    // Decodes a copy that begins one byte later, because no codec may need alignment.
    CodecOf(GetParam()).Encode(values.data(), n, {}, bytes.data());
    EXPECT_EQ(bytes[size], std::byte{0xA5}) << n;
    Bytes moved(size + 1);
    std::copy(bytes.begin(), bytes.end() - 1, moved.begin() + 1);
    std::vector<float> back(n + 1, 42.0f);
    CodecOf(GetParam()).Decode(moved.data() + 1, n, back.data());
    EXPECT_EQ(back[n], 42.0f) << n;
    back.pop_back();
    EXPECT_TRUE(SameBits(back, Decoded(GetParam(), bytes, n))) << n;
  }
}

TEST_P(CodecConformanceTest, CuttingAtBlocksChangesNoBit) {
  const std::vector<float> values = Values(7 * params::kWholeBlocks + 2000, 3);
  const kernels::Rounding rounding = {.key = 5, .stream = 6, .first_element = 1 << 20 | 3};
  const Bytes whole = Encoded(GetParam(), values, rounding);
  for (int64_t block : {1, 2, 7}) {
    const int64_t cut = block * std::max<int64_t>(params::BlockElements(GetParam()), 64);
    kernels::Rounding rest = rounding;
    rest.first_element += cut;
    Bytes parts = Encoded(GetParam(), {values.begin(), values.begin() + cut}, rounding);
    const Bytes second = Encoded(GetParam(), {values.begin() + cut, values.end()}, rest);
    parts.insert(parts.end(), second.begin(), second.end());
    EXPECT_EQ(parts, whole) << cut;
  }
}

TEST_P(CodecConformanceTest, SameNoiseGivesTheSameBytes) {
  const std::vector<float> values = Values(3000, 4);
  const kernels::Rounding rounding = {.key = 9, .stream = 12, .first_element = 77};
  EXPECT_EQ(Encoded(GetParam(), values, rounding), Encoded(GetParam(), values, rounding));
}

// Decodes each value with many random streams. The mean must be the value itself, up to 4.5
// standard errors.
TEST_P(CodecConformanceTest, MeanOverNoiseIsUnbiasedWhereRoundingIsStochastic) {
  if (!RoundsStochastically(GetParam())) GTEST_SKIP() << "rounds to nearest";
  constexpr int kStreams = 4000;
  const std::vector<float> values = Values(512, 5);
  std::vector<double> sums(values.size(), 0.0);
  for (int stream = 0; stream < kStreams; ++stream) {
    const std::vector<float> back =
        RoundTrip(GetParam(), values, {.key = 1, .stream = static_cast<uint64_t>(stream)});
    for (size_t i = 0; i < back.size(); ++i) sums[i] += back[i];
  }
  double total_error = 0.0;
  double total_bound = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double quantum = Bound(GetParam(), values, static_cast<int64_t>(i));
    // The standard deviation of one rounding is at most half a quantum.
    const double standard_error = quantum / 2 / std::sqrt(kStreams);
    const double error = sums[i] / kStreams - values[i];
    EXPECT_LT(std::abs(error), 4.5 * standard_error) << i;
    total_error += error / quantum;
    total_bound += 0.25;
  }
  // The errors of different elements are independent, so the variance of their sum is the sum of
  // their variances.
  EXPECT_LT(std::abs(total_error), 4.5 * std::sqrt(total_bound / kStreams));
}

TEST_P(CodecConformanceTest, ZerosStayZeros) {
  const std::vector<float> back = RoundTrip(GetParam(), std::vector<float>(300, 0.0f));
  EXPECT_TRUE(std::all_of(back.begin(), back.end(), [](float v) { return v == 0.0f; }));
}

TEST_P(CodecConformanceTest, ExtremesStayFiniteAndKeepTheirSign) {
  for (float value : {kMax, 1e38f, 70000.0f, 65519.0f, 1e-30f, 1e-38f, 1e-45f}) {
    const std::vector<float> back = RoundTrip(GetParam(), {value, -value, value / 3});
    for (float element : back) EXPECT_TRUE(std::isfinite(element)) << value;
    EXPECT_GE(back[0], 0.0f) << value;
    EXPECT_LE(back[1], 0.0f) << value;
    EXPECT_LE(back[0], value * 1.01) << value;
  }
}

TEST_P(CodecConformanceTest, NanAndInfAreStillSeen) {
  for (float bad : {std::nanf(""), std::bit_cast<float>(0x7F800001u), kInf, -kInf}) {
    for (int64_t place : {0, 255, 256, 600, 4500, 4999}) {
      std::vector<float> values = Values(5000, 6);
      values[place] = bad;
      const Bytes bytes = Encoded(GetParam(), values, {});
      EXPECT_FALSE(CodecOf(GetParam()).IsSurelyBelow(bytes.data(), kInf, 5000));
      const int64_t first = FirstNotBelow(GetParam(), bytes.data(), kInf, 5000);
      EXPECT_EQ(first,
                place / params::BlockElements(GetParam()) * params::BlockElements(GetParam()));
      const float back = Decoded(GetParam(), bytes, 5000)[place];
      EXPECT_FALSE(std::isfinite(back));
      const bool is_nan = std::isnan(bad) || params::BlockElements(GetParam()) > 1;
      EXPECT_EQ(std::isnan(back), is_nan);
      EXPECT_TRUE(is_nan || back == bad);
    }
  }
  const Bytes fine = Encoded(GetParam(), Values(5000, 6), {});
  EXPECT_TRUE(CodecOf(GetParam()).IsSurelyBelow(fine.data(), kInf, 5000));
  EXPECT_EQ(FirstNotBelow(GetParam(), fine.data(), kInf, 5000), 5000);
}

TEST_P(CodecConformanceTest, TheSumOfSquaresIsThatOfTheDecodedElements) {
  for (const float scale : {1.0f, 1e-6f}) {
    std::vector<float> values = Values(5000, 6);
    for (float& value : values) value *= scale;
    const Bytes bytes = Encoded(GetParam(), values, {});
    double wanted = 0.0;
    for (const float value : Decoded(GetParam(), bytes, 5000)) wanted += double{value} * value;
    double square_sum = -1.0;
    EXPECT_EQ(FirstNotBelow(GetParam(), bytes.data(), kInf, 5000, &square_sum), 5000);
    EXPECT_NEAR(square_sum, wanted, 1e-6 * wanted);
  }
  // The squares of these elements are too large for fp32.
  if (GetParam() == params::Encoding::kFp16) return;
  const Bytes large = Encoded(GetParam(), std::vector<float>(600, 0x1p80f), {});
  // Number of elements that are not 0 after decoding. All 600 elements are in one top-k block.
  const int sent = GetParam().is_topk() ? GetParam().topk() : 600;
  double square_sum = 0.0;
  EXPECT_EQ(FirstNotBelow(GetParam(), large.data(), kInf, 600, &square_sum), 600);
  EXPECT_NEAR(square_sum, sent * 0x1p160, 1e-2 * sent * 0x1p160);
}

TEST_P(CodecConformanceTest, TheFirstThatIsNotBelowALimitIsFound) {
  for (const float limit : {1e-3f, 0.3f, 40000.0f, 1e18f}) {
    // `large` is twice the limit. If that is too large for fp16, it is 65000.
    const float large =
        GetParam() == params::Encoding::kFp16 ? std::min(2 * limit, 65000.0f) : 2 * limit;
    std::vector<float> values(600, 0.0f);
    const Bytes fine = Encoded(GetParam(), values, {});
    EXPECT_TRUE(CodecOf(GetParam()).IsSurelyBelow(fine.data(), limit, 600)) << limit;
    EXPECT_EQ(FirstNotBelow(GetParam(), fine.data(), limit, 600), 600) << limit;
    if (large < limit) continue;  // fp16 cannot reach that far
    for (const float sign : {1.0f, -1.0f}) {
      values[300] = sign * large;
      const Bytes bytes = Encoded(GetParam(), values, {});
      EXPECT_FALSE(CodecOf(GetParam()).IsSurelyBelow(bytes.data(), limit, 600)) << limit;
      EXPECT_EQ(FirstNotBelow(GetParam(), bytes.data(), limit, 600), 300) << limit;
      double square_sum = 0.0;
      EXPECT_EQ(FirstNotBelow(GetParam(), bytes.data(), limit, 600, &square_sum), 300) << limit;
    }
  }
}

// A NaN or Inf in the input makes all elements of its block NaN or Inf. Other blocks of the vector
// do not change.
TEST_P(CodecConformanceTest, NanAndInfSpoilOneBlockOnly) {
  const int64_t block = params::BlockElements(GetParam());
  for (float bad : {std::nanf(""), kInf}) {
    std::vector<float> values = Values(3 * block + 1, 6);
    values[block] = bad;
    const std::vector<float> back = RoundTrip(GetParam(), values);
    for (int64_t i = 0; i < 3 * block + 1; ++i) {
      EXPECT_EQ(std::isfinite(back[i]), i / block != 1) << i;
      EXPECT_EQ(std::isnan(back[i]), i / block == 1 && (block > 1 || std::isnan(bad))) << i;
    }
  }
}

// No encoder makes the bytes of this test, because one of their codes decodes to -Inf.
// IsSurelyBelow() and FirstNotBelow() must both detect this.
TEST(Int4CodecTest, BlockThatDecodesBeyondTheRangeIsSeen) {
  // The scale is 2^125, and the codes include -8 and 7.
  const Bytes bytes = {std::byte{0x00}, std::byte{0x7E}, std::byte{0x70}, std::byte{0x08}};
  EXPECT_FALSE(CodecOf(params::Encoding::kInt4).IsSurelyBelow(bytes.data(), kInf, 3));
  EXPECT_EQ(FirstNotBelow(params::Encoding::kInt4, bytes.data(), kInf, 3), 2);
  EXPECT_EQ(Decoded(params::Encoding::kInt4, bytes, 3),
            (std::vector<float>{0.0f, 7 * 0x1p125f, -kInf}));
}

TEST(Int8CodecTest, BlockThatDecodesBeyondTheRangeIsSeen) {
  const float scale = kMax / 127.5f;
  for (int code : {-128, 127}) {
    Bytes bytes(params::EncodedBytes(params::Encoding::kInt8, 3));
    std::memcpy(bytes.data(), &scale, sizeof(scale));
    bytes[sizeof(scale) + 1] = static_cast<std::byte>(code);
    EXPECT_FALSE(CodecOf(params::Encoding::kInt8).IsSurelyBelow(bytes.data(), kInf, 3));
    EXPECT_EQ(FirstNotBelow(params::Encoding::kInt8, bytes.data(), kInf, 3), code == -128 ? 1 : 3);
  }
}

TEST_P(CodecConformanceTest, AccumulatingDecodesFirst) {
  for (int64_t n : kSizes) {
    const Bytes bytes = Encoded(GetParam(), Values(n, 7), {});
    const std::vector<float> decoded = Decoded(GetParam(), bytes, n);
    std::vector<float> wanted = Values(n, 8);
    std::vector<float> seen = wanted;
    for (kernels::Accumulate accumulate : {kernels::Accumulate::kAdd, kernels::Accumulate::kSet}) {
      vectors::AccumulateScaled(wanted.data(), decoded.data(), 0.3f, n, accumulate);
      AccumulateDecoded(GetParam(), bytes.data(), n, 0.3f, seen.data(), accumulate);
      EXPECT_TRUE(SameBits(seen, wanted)) << n;
    }
  }
}

// Over all rounds, the sum of the decoded vectors plus the last residual equals the sum of the
// input vectors. The tolerance is for the rounding of fp32 sums.
TEST_P(CodecConformanceTest, ErrorFeedbackLosesNothingInSum) {
  constexpr int64_t kElements = 5000;
  constexpr int kRounds = 200;
  std::vector<double> sent(kElements, 0.0);
  std::vector<double> arrived(kElements, 0.0);
  std::vector<double> magnitude(kElements, 0.0);
  std::vector<float> residual(kElements, 0.0f);
  Bytes bytes(params::EncodedBytes(GetParam(), kElements));
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<float> values = Values(kElements, 100 + round);
    const float scale = round % 3 == 0 ? 0.37f : 1.0f;
    const kernels::Rounding rounding = {.kind = round % 2 == 0
                                                    ? kernels::Rounding::Kind::kToNearest
                                                    : kernels::Rounding::Kind::kStochastic,
                                        .key = 1,
                                        .stream = static_cast<uint64_t>(round)};
    EncodeWithResidual(GetParam(), values.data(), scale, residual.data(), kElements, rounding,
                       bytes.data());
    UpdateResidual(GetParam(), values.data(), scale, bytes.data(), kElements, 1.0f,
                   residual.data());
    const std::vector<float> decoded = Decoded(GetParam(), bytes, kElements);
    for (int64_t i = 0; i < kElements; ++i) {
      sent[i] += static_cast<double>(scale) * values[i];
      arrived[i] += decoded[i];
      // A round has three fp32 roundings. Each has an error of at most 2^-24 of this sum.
      magnitude[i] += std::abs(values[i]) + std::abs(decoded[i]) + std::abs(residual[i]);
    }
  }
  for (int64_t i = 0; i < kElements; ++i) {
    EXPECT_NEAR(arrived[i] + residual[i], sent[i], magnitude[i] * 2e-7) << i;
    EXPECT_TRUE(residual[i] == 0.0f || GetParam() != params::Encoding::kFp32);
  }
}

TEST_P(CodecConformanceTest, EncodingAndUpdatingAtOnceGivesTheSameBits) {
  // The vector is longer than two pieces of encoded_vectors.cc. Its length is not a multiple of the
  // width of any SIMD vector.
  constexpr int64_t kElements = 2 * params::kWholeBlocks + 77;
  std::vector<float> values = Values(kElements, 5);
  values[10] = kInf;
  values[params::kWholeBlocks + 5] = std::nanf("");
  const std::vector<float> residual = Values(kElements, 6);
  const kernels::Rounding rounding = {.key = 3, .stream = 4, .first_element = 1000};
  for (const float scale : {1.0f, 0.37f}) {
    for (const float decay : {1.0f, 0.95f}) {
      Bytes bytes(params::EncodedBytes(GetParam(), kElements));
      EncodeWithResidual(GetParam(), values.data(), scale, residual.data(), kElements, rounding,
                         bytes.data());
      std::vector<float> updated = residual;
      UpdateResidual(GetParam(), values.data(), scale, bytes.data(), kElements, decay,
                     updated.data());
      for (const int64_t offset : {0, 1, 15}) {
        Bytes bytes_at_once(bytes.size());
        std::vector<float> next(offset + kElements + 1, 7.0f);
        EncodeAndUpdate(GetParam(), values.data(), scale, residual.data(), kElements, rounding,
                        decay, bytes_at_once.data(), next.data() + offset);
        EXPECT_EQ(bytes_at_once, bytes);
        EXPECT_EQ(next.back(), 7.0f);
        EXPECT_EQ(std::count(next.begin(), next.begin() + offset, 7.0f), offset);
        next.erase(next.begin(), next.begin() + offset);
        next.resize(kElements);
        EXPECT_TRUE(SameBits(next, updated)) << scale << " " << decay << " " << offset;
      }
    }
  }
}

// Every encoded change is added to the shadow. The distance between shadow and target must stay
// within the error of encoding one change.
TEST_P(CodecConformanceTest, ShadowFollowsItsTarget) {
  if (GetParam().is_topk()) GTEST_SKIP() << "is of contributions only";
  constexpr int64_t kElements = 3000;
  std::vector<float> target = Values(kElements, 9);
  std::vector<float> shadow = target;
  // EncodeChangeAndAdvance() must change this shadow in the same way.
  std::vector<float> advanced = target;
  Bytes bytes(params::EncodedBytes(GetParam(), kElements));
  Bytes bytes_of_advanced(bytes.size());
  for (int version = 1; version <= 100; ++version) {
    const std::vector<float> step = Values(kElements, 1000 + version);
    for (int64_t i = 0; i < kElements; ++i) target[i] += 0.01f * step[i];
    std::vector<float> change(kElements);
    vectors::Subtract(change.data(), target.data(), shadow.data(), kElements);
    const kernels::Rounding rounding = {.key = 2, .stream = static_cast<uint64_t>(version)};
    EncodeChange(GetParam(), target.data(), shadow.data(), kElements, rounding, bytes.data());
    AccumulateDecoded(GetParam(), bytes.data(), kElements, 1.0f, shadow.data(),
                      kernels::Accumulate::kAdd);
    EncodeChangeAndAdvance(GetParam(), target.data(), advanced.data(), kElements, rounding,
                           bytes_of_advanced.data());
    ASSERT_EQ(bytes_of_advanced, bytes);
    ASSERT_TRUE(SameBits(advanced, shadow));
    for (int64_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(shadow[i], target[i], Bound(GetParam(), change, i) + 1e-7 * std::abs(target[i]))
          << "element " << i << ", version " << version;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllCodecs, CodecConformanceTest, testing::ValuesIn(params::kAllEncodings),
                         [](const auto& info) {
                           return std::string(params::EncodingKindName(info.param.kind()));
                         });

// Compares the decoded value of every 16-bit code with the definition of the format.
TEST(HalfCodecTest, DecodesEveryCodeAndEncodesItBack) {
  for (params::Encoding encoding : {params::Encoding::kBf16, params::Encoding::kFp16}) {
    const int mantissa_bits = encoding == params::Encoding::kBf16 ? 7 : 10;
    const int exponent_bits = 15 - mantissa_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (uint32_t code = 0; code < 1 << 16; ++code) {
      Bytes bytes(2);
      std::memcpy(bytes.data(), &code, 2);
      const float seen = Decoded(encoding, bytes, 1)[0];
      const int exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
      const int mantissa = code & ((1 << mantissa_bits) - 1);
      if (exponent == (1 << exponent_bits) - 1) {
        EXPECT_EQ(std::isnan(seen), mantissa != 0);
        EXPECT_FALSE(std::isfinite(seen));
        continue;
      }
      const double significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
      const double wanted = std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
      ASSERT_EQ(seen, static_cast<float>(code >> 15 ? -wanted : wanted)) << code;
      ASSERT_EQ(Encoded(encoding, {seen}, {}), bytes) << code;
    }
  }
}

TEST(HalfCodecTest, TiesGoToEven) {
  EXPECT_EQ(RoundTrip(params::Encoding::kBf16, {1.0f + 0x1p-8f})[0], 1.0f);
  EXPECT_EQ(RoundTrip(params::Encoding::kBf16, {1.0f + 3 * 0x1p-8f})[0], 1.0f + 0x1p-6f);
  EXPECT_EQ(RoundTrip(params::Encoding::kFp16, {1.0f + 0x1p-11f})[0], 1.0f);
  EXPECT_EQ(RoundTrip(params::Encoding::kFp16, {1.0f + 3 * 0x1p-11f})[0], 1.0f + 0x1p-9f);
  EXPECT_EQ(RoundTrip(params::Encoding::kFp16, {0x1p-25f})[0], 0.0f);
  EXPECT_EQ(RoundTrip(params::Encoding::kFp16, {3 * 0x1p-25f})[0], 0x1p-23f);
}

TEST(Int8CodecTest, LayoutIsScaleThenCodes) {
  std::vector<float> values(257, 0.0f);
  values[1] = 127.0f;
  values[2] = -127.0f;
  values[256] = 254.0f;
  const Bytes bytes = Encoded(params::Encoding::kInt8, values, {});
  ASSERT_EQ(bytes.size(), 4 + 256 + 4 + 1);
  float scales[2];
  std::memcpy(&scales[0], bytes.data(), 4);
  std::memcpy(&scales[1], bytes.data() + 260, 4);
  EXPECT_EQ(scales[0], 1.0f);
  EXPECT_EQ(scales[1], 2.0f);
  EXPECT_EQ(bytes[4], std::byte{0});
  EXPECT_EQ(bytes[5], std::byte{127});
  EXPECT_EQ(bytes[6], std::byte{0x81});
  EXPECT_EQ(bytes[264], std::byte{127});
}

TEST(Int8CodecTest, NoiseIsThatOfPhilox) {
  // A value halfway between two codes is rounded up if its random word is in the lower half of all
  // possible words.
  std::vector<float> values(600, 63.5f);
  values[0] = values[256] = values[512] = 127.0f;
  const kernels::Rounding rounding = {
      .key = 0x123456789ABCDEF0, .stream = 1ull << 40 | 5, .first_element = (1ll << 34) + 2};
  const std::vector<float> back = RoundTrip(params::Encoding::kInt8, values, rounding);
  for (int64_t i = 0; i < 600; ++i) {
    if (i % 256 == 0) continue;
    const uint64_t element = rounding.first_element + i;
    const uint32_t word = Philox(rounding.key, rounding.stream, element / 4)[element % 4];
    ASSERT_EQ(back[i], word < 1u << 31 ? 64.0f : 63.0f) << i;
  }
}

TEST(BlockCodecTest, RoundsToTheNearerCodeWhereItIsToAndHalvesDown) {
  for (const auto& [encoding, largest] :
       {std::pair(params::Encoding::kInt8, 127), {params::Encoding::kInt4, 7}}) {
    std::vector<float> values(300);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.25f * static_cast<float>(static_cast<int>(i) % (8 * largest + 1) - 4 * largest);
    }
    // Every block has the scale 1, because every block has an element `largest`, which is the
    // largest code.
    for (size_t i = 0; i < values.size(); i += 64) values[i] = static_cast<float>(largest);
    for (const int64_t first : {0, 3}) {
      const std::vector<float> back = RoundTrip(
          encoding, values,
          {.kind = kernels::Rounding::Kind::kToNearest, .key = 5, .first_element = first});
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(back[i], std::ceil(values[i] - 0.5f))
            << params::EncodingText(encoding) << " " << i;
      }
    }
  }
}

float ScaleAt(const Bytes& bytes, int64_t place) {
  uint16_t code = 0;
  std::memcpy(&code, bytes.data() + place, sizeof(code));
  return std::bit_cast<float>(uint32_t{code} << 16);
}

TEST(Int4CodecTest, LayoutIsScaleThenTwoCodesInAByte) {
  std::vector<float> values(131, 0.0f);
  values[1] = 7.0f;
  values[2] = -7.0f;
  values[3] = -1.0f;
  values[128] = 14.0f;
  values[129] = -2.0f;
  values[130] = -14.0f;
  const Bytes bytes = Encoded(params::Encoding::kInt4, values, {});
  ASSERT_EQ(bytes.size(), 2 + 64 + 2 + 2);
  EXPECT_EQ(ScaleAt(bytes, 0), 1.0f);
  EXPECT_EQ(bytes[2], std::byte{0x70});
  EXPECT_EQ(bytes[3], std::byte{0xF9});
  EXPECT_EQ(bytes[4], std::byte{0x00});
  EXPECT_EQ(ScaleAt(bytes, 66), 2.0f);
  EXPECT_EQ(bytes[68], std::byte{0xF7});
  EXPECT_EQ(bytes[69], std::byte{0x09}) << "the unused half is 0";
}

TEST(Int4CodecTest, TheScaleIsTheLeastThatTheLargestElementNeeds) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const float largest = std::abs(Values(1, seed)[0]);
    const float scale = ScaleAt(Encoded(params::Encoding::kInt4, {largest, -largest}, {}), 0);
    const float below = std::bit_cast<float>(std::bit_cast<uint32_t>(scale) - 0x10000);
    EXPECT_GE(7 * scale, largest);
    EXPECT_LT(7 * below, largest);
  }
  // The scale is kMax / 7 rounded up to bf16. Seven times this scale would be infinite, so the next
  // lower scale is used.
  const float most = ScaleAt(Encoded(params::Encoding::kInt4, {kMax}, {}), 0);
  EXPECT_TRUE(std::isfinite(7 * most));
  EXPECT_LT(7 * most, kMax);
  EXPECT_EQ(RoundTrip(params::Encoding::kInt4, {kMax, -kMax}),
            (std::vector<float>{7 * most, -7 * most}));
}

TEST(Int4CodecTest, BlocksWhoseScaleWouldBeSubnormalAreZeros) {
  const float smallest = 7 * std::numeric_limits<float>::min();
  EXPECT_EQ(RoundTrip(params::Encoding::kInt4, {smallest})[0], smallest);
  const float below = std::nextafter(smallest, 0.0f);
  const Bytes bytes = Encoded(params::Encoding::kInt4, {below, -below, 1e-45f}, {});
  EXPECT_EQ(bytes, Bytes(4, std::byte{0}));
}

TEST(Int4CodecTest, NoiseIsThatOfPhilox) {
  std::vector<float> values(600, 3.5f);
  for (int64_t begin = 0; begin < 600; begin += params::kInt4Block) values[begin] = -7.0f;
  const kernels::Rounding rounding = {
      .key = 0x123456789ABCDEF0, .stream = 1ull << 40 | 5, .first_element = (1ll << 34) + 2};
  const std::vector<float> back = RoundTrip(params::Encoding::kInt4, values, rounding);
  for (int64_t i = 0; i < 600; ++i) {
    if (i % params::kInt4Block == 0) continue;
    const uint64_t element = rounding.first_element + i;
    const uint32_t word = Philox(rounding.key, rounding.stream, element / 4)[element % 4];
    ASSERT_EQ(back[i], word < 1u << 31 ? 4.0f : 3.0f) << i;
  }
}

TEST(CodecLoopsTest, EveryInstructionSetGivesTheSameBits) {
  std::vector<float> values = Values(1003, 11);
  for (float special : {0.0f, -0.0f, kInf, -kInf, std::nanf(""), kMax, -kMax, 1e-40f, 65520.0f}) {
    values.push_back(special);
  }
  const int64_t n = static_cast<int64_t>(values.size());
  const codec::Loops& reference = codec::BestLoops();
  std::vector<uint16_t> codes(n);
  std::vector<uint16_t> other_codes(n);
  std::vector<float> floats(n);
  std::vector<float> other_floats(n);
  std::vector<uint32_t> words(4 * 32);
  std::vector<uint32_t> other_words(4 * 32);
  std::vector<int8_t> bytes(100);
  std::vector<int8_t> other_bytes(100);
  reference.philox(3, 1ull << 33, 0xFFFFFFF0, 32, words.data());
  std::vector<uint8_t> packed(50);
  std::vector<uint8_t> other_packed(50);
  for (int set = 0; codec::SupportedLoops(set) != nullptr; ++set) {
    const codec::Loops& loops = *codec::SupportedLoops(set);
    reference.to_bf16(values.data(), codes.data(), n);
    loops.to_bf16(values.data(), other_codes.data(), n);
    EXPECT_EQ(other_codes, codes) << loops.name;
    reference.to_fp16(values.data(), codes.data(), n);
    loops.to_fp16(values.data(), other_codes.data(), n);
    EXPECT_EQ(other_codes, codes) << loops.name;
    reference.from_fp16(codes.data(), floats.data(), n);
    loops.from_fp16(codes.data(), other_floats.data(), n);
    EXPECT_TRUE(SameBits(other_floats, floats)) << loops.name;
    EXPECT_EQ(loops.max_magnitude(values.data(), n), reference.max_magnitude(values.data(), n));
    for (uint32_t least : {0u, 1u, 0x3A800000u, 0x7F800000u, 0x7FFFFFFFu}) {
      EXPECT_EQ(loops.count_at_least(values.data(), least, n),
                reference.count_at_least(values.data(), least, n));
      std::vector<uint8_t> marks(n);
      std::vector<uint8_t> other_marks(n);
      reference.mark_at_least(values.data(), least, marks.data(), n);
      loops.mark_at_least(values.data(), least, other_marks.data(), n);
      EXPECT_EQ(other_marks, marks) << loops.name;
    }
    loops.philox(3, 1ull << 33, 0xFFFFFFF0, 32, other_words.data());
    EXPECT_EQ(other_words, words) << loops.name;
    for (int32_t largest_code : {127, 7}) {
      reference.quantize(values.data(), 1000.0f, words.data(), largest_code, bytes.data(), 100);
      loops.quantize(values.data(), 1000.0f, words.data(), largest_code, other_bytes.data(), 100);
      EXPECT_EQ(other_bytes, bytes) << loops.name;
      const std::vector<uint32_t> middle(100, kernels::kWordOfTheMiddle);
      reference.quantize(values.data(), 1000.0f, middle.data(), largest_code, bytes.data(), 100);
      loops.quantize_to_nearest(values.data(), 1000.0f, largest_code, other_bytes.data(), 100);
      EXPECT_EQ(other_bytes, bytes) << loops.name;
      for (int i = 0; i < 100; ++i) {
        floats[i] = static_cast<float>(i - 50) / 4.0f;  // the values include halves
        const auto code = static_cast<int32_t>(std::ceil(floats[i] - 0.5f));
        bytes[i] = static_cast<int8_t>(std::clamp(code, -largest_code, largest_code));
      }
      loops.quantize_to_nearest(floats.data(), 1.0f, largest_code, other_bytes.data(), 100);
      EXPECT_EQ(other_bytes, bytes) << loops.name;
    }
    for (int64_t size : {100, 99, 64, 1}) {
      reference.pack_halves(bytes.data(), packed.data(), size);
      loops.pack_halves(bytes.data(), other_packed.data(), size);
      EXPECT_EQ(other_packed, packed) << loops.name;
      reference.dequantize_halves(packed.data(), 0.3f, floats.data(), size);
      loops.dequantize_halves(packed.data(), 0.3f, other_floats.data(), size);
      EXPECT_TRUE(SameBits(other_floats, floats)) << loops.name;
    }
  }
}

}  // namespace
}  // namespace lodestar::codec
