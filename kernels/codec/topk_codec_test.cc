// SPDX-License-Identifier: Apache-2.0

#include "kernels/codec/topk_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/runtime/random.h"
#include "gtest/gtest.h"
#include "kernels/codec/encoded_vectors.h"

namespace lodestar::codec {
namespace {

using Bytes = std::vector<std::byte>;

constexpr params::Encoding kParameters[] = {
    params::Encoding::TopK(64, 2), params::Encoding::TopK(64, 4), params::Encoding::TopK(1, 2),
    params::Encoding::TopK(7, 4), params::Encoding::TopK(1024, 2)};

std::vector<float> Values(int64_t n, uint64_t seed) {
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) {
    const std::array<double, 4> normals = NormalsFrom(Philox(seed, 7, i));
    values[i] = static_cast<float>(normals[0] * std::exp(normals[1]) * 1e-3);
  }
  return values;
}

Bytes Encoded(params::Encoding encoding, const std::vector<float>& values) {
  Bytes bytes(params::EncodedBytes(encoding, static_cast<int64_t>(values.size())));
  CodecOf(encoding).Encode(values.data(), values.size(), {}, bytes.data());
  return bytes;
}

std::vector<float> Decoded(params::Encoding encoding, const Bytes& bytes, int64_t n) {
  std::vector<float> values(n);
  CodecOf(encoding).Decode(bytes.data(), n, values.data());
  return values;
}

std::vector<int64_t> PlacesOf(params::Encoding encoding, const Bytes& bytes, int64_t n) {
  std::vector<float> marks(n, 0.0f);
  AddAtTopK(encoding, bytes.data(), n, 1.0f, marks.data());
  std::vector<int64_t> places;
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_TRUE(marks[i] == 0.0f || marks[i] == 1.0f) << i;
    if (marks[i] == 1.0f) places.push_back(i);
  }
  return places;
}

// Returns the positions of the elements that top-k must keep. Sorts each block to find them.
std::vector<int64_t> LargestOf(const std::vector<float>& values, int64_t topk) {
  std::vector<int64_t> places;
  for (int64_t begin = 0; begin < values.size(); begin += params::kTopKBlock) {
    std::vector<int64_t> order(std::min<int64_t>(params::kTopKBlock, values.size() - begin));
    std::iota(order.begin(), order.end(), begin);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return std::abs(values[a]) > std::abs(values[b]);
    });
    order.resize(std::min<size_t>(topk, order.size()));
    places.insert(places.end(), order.begin(), order.end());
  }
  std::sort(places.begin(), places.end());
  return places;
}

TEST(TopKCodecTest, KeepsTheLargestOfEachBlock) {
  for (const params::Encoding encoding : kParameters) {
    for (int64_t n : {1, 2, 63, 64, 65, 1000, 4095, 4096, 4097, 9000}) {
      const std::vector<float> values = Values(n, n);
      EXPECT_EQ(PlacesOf(encoding, Encoded(encoding, values), n),
                LargestOf(values, encoding.topk()))
          << params::EncodingText(encoding) << " of " << n;
    }
  }
}

TEST(TopKCodecTest, OfEqualMagnitudesTheLowerPlacesTravel) {
  for (const params::Encoding encoding : kParameters) {
    std::vector<float> values(5000);
    for (int64_t i = 0; i < 5000; ++i) {
      values[i] = static_cast<float>(i * 7 % 5 + 1) * (i % 2 == 0 ? 1.0f : -1.0f);
    }
    EXPECT_EQ(PlacesOf(encoding, Encoded(encoding, values), 5000),
              LargestOf(values, encoding.topk()))
        << params::EncodingText(encoding);
    std::fill(values.begin(), values.end(), -0.5f);
    EXPECT_EQ(PlacesOf(encoding, Encoded(encoding, values), 5000),
              LargestOf(values, encoding.topk()))
        << params::EncodingText(encoding);
  }
}

TEST(TopKCodecTest, LayoutIsLevelsThenPlacesThenCodes) {
  std::vector<float> values(4096, 0.0f);
  values[0x123] = 1.0f;
  values[0x456] = -3.0f;
  values[0xFED] = 3.0f;
  const auto bytes_of = [](params::Encoding encoding, const std::vector<float>& of) {
    std::vector<int> bytes;
    for (const std::byte one : Encoded(encoding, of)) bytes.push_back(std::to_integer<int>(one));
    return bytes;
  };
  // The bytes are: low = 1 and step = 2 in bf16; the positions 0x123, 0x456 and 0xFED in 12 bits
  // each; the codes of 1 (level 0), -3 (level 1 and sign) and 3 (level 1).
  EXPECT_EQ(bytes_of(params::Encoding::TopK(3, 2), values),
            (std::vector<int>{0x80, 0x3F, 0x00, 0x40, 0x23, 0x61, 0x45, 0xED, 0x0F, 0b01'11'00}));
  values[0x123] = 0.0f;
  values[0x456] = -8.0f;
  values[0xFED] = 1.0f;
  // The bytes are: low = 1 and step = 1 in bf16; the two positions; the codes of -8 (level 7 and
  // sign) and 1 (level 0).
  EXPECT_EQ(bytes_of(params::Encoding::TopK(2, 4), values),
            (std::vector<int>{0x80, 0x3F, 0x80, 0x3F, 0x56, 0xD4, 0xFE, 0x0F}));
}

TEST(TopKCodecTest, FourBitsAreWithinHalfAStep) {
  const params::Encoding encoding = params::Encoding::TopK(64, 4);
  const std::vector<float> values = Values(4096, 3);
  const std::vector<int64_t> kept = LargestOf(values, 64);
  const auto [least, most] = std::minmax_element(
      kept.begin(), kept.end(),
      [&](int64_t a, int64_t b) { return std::abs(values[a]) < std::abs(values[b]); });
  const double step = (std::abs(values[*most]) - std::abs(values[*least])) / 7.0;
  const std::vector<float> back = Decoded(encoding, Encoded(encoding, values), 4096);
  for (int64_t i : kept) {
    // The second term is for the rounding of `low` and `step` to bf16.
    EXPECT_NEAR(back[i], values[i], step / 2 + std::abs(values[*most]) * 0x1p-7) << i;
    EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i])) << i;
  }
}

// The error may be slightly larger than with the best two levels. The codec makes only four passes
// of k-means, and rounds levels to bf16.
TEST(TopKCodecTest, TwoBitsLoseNoMoreThanTheBestTwoLevels) {
  const params::Encoding encoding = params::Encoding::TopK(64, 2);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<float> values = Values(4096, seed);
    std::vector<double> kept;
    for (int64_t i : LargestOf(values, 64)) kept.push_back(std::abs(values[i]));
    std::sort(kept.begin(), kept.end());
    double best = 1e30;
    for (size_t cut = 1; cut < kept.size(); ++cut) {
      double loss = 0.0;
      for (const auto& [from, to] : {std::pair<size_t, size_t>(0, cut), {cut, kept.size()}}) {
        const double mean =
            std::accumulate(kept.begin() + from, kept.begin() + to, 0.0) / (to - from);
        for (size_t i = from; i < to; ++i) loss += (kept[i] - mean) * (kept[i] - mean);
      }
      best = std::min(best, loss);
    }
    const std::vector<float> back = Decoded(encoding, Encoded(encoding, values), 4096);
    double loss = 0.0;
    for (int64_t i : LargestOf(values, 64)) {
      loss += (double{values[i]} - back[i]) * (double{values[i]} - back[i]);
    }
    EXPECT_LT(loss, 1.5 * best) << seed;
  }
}

TEST(TopKCodecTest, KeepingAllLosesOnlyRounding) {
  const params::Encoding encoding = params::Encoding::TopK(1024, 4);
  const std::vector<float> values = Values(1000, 5);
  const std::vector<float> back = Decoded(encoding, Encoded(encoding, values), 1000);
  const float largest = std::abs(*std::max_element(
      values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  for (int64_t i = 0; i < 1000; ++i) EXPECT_NEAR(back[i], values[i], largest / 14 * 1.02) << i;
}

// The residual must be decay * (residual + scaled values - decoded), up to the rounding of fp32.
TEST(TopKCodecTest, ResidualDecays) {
  constexpr float kDecay = 0.75f;
  constexpr int64_t kElements = 5000;
  for (const params::Encoding encoding : kParameters) {
    std::vector<double> wanted(kElements, 0.0);
    std::vector<float> residual(kElements, 0.0f);
    Bytes bytes(params::EncodedBytes(encoding, kElements));
    for (int round = 0; round < 30; ++round) {
      const std::vector<float> values = Values(kElements, 100 + round);
      EncodeWithResidual(encoding, values.data(), 0.5f, residual.data(), kElements, {},
                         bytes.data());
      UpdateResidual(encoding, values.data(), 0.5f, bytes.data(), kElements, kDecay,
                     residual.data());
      const std::vector<float> decoded = Decoded(encoding, bytes, kElements);
      for (int64_t i = 0; i < kElements; ++i) {
        wanted[i] = kDecay * (wanted[i] + 0.5 * values[i] - decoded[i]);
        ASSERT_NEAR(residual[i], wanted[i], 1e-6 * (1.0 + std::abs(wanted[i]))) << i;
        wanted[i] = residual[i];
      }
    }
  }
}

TEST(TopKCodecTest, PlacesThatNoEncoderWritesAreFound) {
  const params::Encoding encoding = params::Encoding::TopK(4, 2);
  const int64_t n = 4096 + 100;
  const Bytes fine = Encoded(encoding, Values(n, 1));
  EXPECT_EQ(FirstMalformed(encoding, fine.data(), n), n);
  const int64_t block = params::EncodedBytes(encoding, 4096);
  const auto with_places = [&](int64_t of_block, std::vector<int> places) {
    Bytes bytes = fine;
    std::byte* const to = bytes.data() + of_block * block + 4;
    for (int i = 0; i < 4; i += 2) {
      to[i / 2 * 3] = static_cast<std::byte>(places[i]);
      to[i / 2 * 3 + 1] = static_cast<std::byte>(places[i] >> 8 | places[i + 1] << 4);
      to[i / 2 * 3 + 2] = static_cast<std::byte>(places[i + 1] >> 4);
    }
    return bytes;
  };
  const auto first_of = [&](const Bytes& bytes) {
    return FirstMalformed(encoding, bytes.data(), n);
  };
  EXPECT_EQ(first_of(with_places(0, {0, 1, 2, 4095})), n);
  EXPECT_EQ(first_of(with_places(0, {5, 5, 6, 7})), 0);
  EXPECT_EQ(first_of(with_places(0, {5, 4, 6, 7})), 0);
  EXPECT_EQ(first_of(with_places(1, {0, 1, 2, 99})), n);
  EXPECT_EQ(first_of(with_places(1, {0, 1, 2, 100})), 4096);
  EXPECT_EQ(first_of(with_places(1, {7, 8, 9, 9})), 4096);
  // Decoding positions beyond the end of a block must not write outside the vector.
  const Bytes beyond = with_places(1, {0, 1, 4000, 4095});
  std::vector<float> back(n + 4096, 42.0f);
  CodecOf(encoding).Decode(beyond.data(), n, back.data());
  AddAtTopK(encoding, beyond.data(), n, 1.0f, back.data());
  EXPECT_TRUE(std::all_of(back.begin() + n, back.end(), [](float v) { return v == 42.0f; }));
  EXPECT_EQ(FirstMalformed(params::Encoding::kInt4, fine.data(), 100), 100);
}

TEST(TopKCodecTest, LevelsThatAreNotFiniteAreSeen) {
  const params::Encoding encoding = params::Encoding::TopK(4, 4);
  for (const uint16_t level : {0x7F80, 0xFF80, 0x7FC0}) {
    for (const int at : {0, 2}) {
      Bytes bytes = Encoded(encoding, Values(5000, 1));
      std::memcpy(bytes.data() + at, &level, sizeof(level));
      EXPECT_EQ(FirstNotBelow(encoding, bytes.data(), INFINITY, 5000), 0);
    }
  }
  // With this step, low + 7 * step is too large for fp32.
  Bytes bytes = Encoded(encoding, Values(5000, 1));
  const uint16_t large = 0x7F00;
  std::memcpy(bytes.data() + 2, &large, sizeof(large));
  EXPECT_LT(FirstNotBelow(encoding, bytes.data(), INFINITY, 5000), 5000);
}

TEST(TopKCodecTest, PartsDecodeAsTheWhole) {
  for (const params::Encoding encoding :
       {params::Encoding::TopK(64, 2), params::Encoding::kInt4, params::Encoding::kFp32}) {
    const int64_t n = 9000;
    const Bytes bytes = Encoded(encoding, Values(n, 2));
    const std::vector<float> whole = Decoded(encoding, bytes, n);
    for (const auto& [begin, size] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 256}, {256, 256}, {3840, 512}, {4096, 4096}, {8960, 40}, {0, 9000}, {256, 8744}}) {
      std::vector<float> part(size);
      DecodePart(encoding, bytes.data(), n, begin, size, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin;
    }
  }
}

TEST(TopKCodecTest, WhatIsAllKeptCountsEverywhere) {
  std::vector<float> weights(100, 1.0f);
  AddWhereKept(params::Encoding::kInt8, nullptr, 100, 0.5f, weights.data());
  EXPECT_EQ(weights, std::vector<float>(100, 1.5f));
}

}  // namespace
}  // namespace lodestar::codec
