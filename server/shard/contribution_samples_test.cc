// SPDX-License-Identifier: Apache-2.0

#include "server/shard/contribution_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "kernels/codec/codec.h"

namespace lodestar::shard {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<float> Sum(const std::vector<float>& a, float factor, const std::vector<float>& b) {
  std::vector<float> sum(a);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * b[i];
  return sum;
}

void Add(ContributionSamples& samples, uint32_t worker, const std::vector<float>& values,
         params::Encoding encoding = params::Encoding::kFp32, const float* base = nullptr,
         int64_t round = 0) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<std::byte> encoded(params::EncodedBytes(encoding, n));
  codec::CodecOf(encoding).Encode(values.data(), n, {}, encoded.data());
  samples.Add(WorkerId(worker), Incarnation(worker + 10), Round(round), encoding, encoded.data(),
              0.5f, base);
}

double CosineOf(const DirectionPart& part) {
  return part.product / std::sqrt(part.own_square * part.others_square);
}

TEST(ContributionSamplesTest, TheWholeOfASmallBucketIsLookedAtInEveryEncoding) {
  const std::vector<float> values = Random(1000, 1);
  for (const params::Encoding encoding : params::kAllEncodings) {
    ContributionSamples samples(1000, 1 << 16);
    Add(samples, 1, values, encoding);
    Add(samples, 2, Sum(values, -3.0f, values), encoding);
    const std::vector<DirectionPart> parts = samples.EndRound();
    ASSERT_THAT(parts, SizeIs(2));
    EXPECT_EQ(parts[0].worker, WorkerId(1));
    EXPECT_EQ(parts[0].incarnation, Incarnation(11));
    EXPECT_NEAR(parts[0].own_square, 1.0, 1e-5);
    EXPECT_NEAR(parts[0].others_square, 1.0, 1e-5) << "however long it is";
    const double lost = encoding == params::Encoding::kInt4 ? 0.05 : 1e-3;
    EXPECT_NEAR(CosineOf(parts[0]), -1.0, lost);
    EXPECT_NEAR(CosineOf(parts[1]), -1.0, lost);
  }
}

TEST(ContributionSamplesTest, ASampleTellsWhatTheWholeWould) {
  constexpr int64_t kElements = 100'003;
  const std::vector<float> common = Random(kElements, 1);
  for (const int64_t round : {0, 1, 2, 3}) {
    ContributionSamples samples(kElements, 8192);
    for (const uint32_t worker : {1, 2, 3}) {
      Add(samples, worker, Sum(Random(kElements, 100 + worker), 1.0f, common),
          params::Encoding::kFp32, nullptr, round);
    }
    Add(samples, 4, Random(kElements, 104), params::Encoding::kFp32, nullptr, round);
    const std::vector<DirectionPart> parts = samples.EndRound();
    ASSERT_THAT(parts, SizeIs(4));
    // Each two of the contributions of workers 1, 2 and 3 have a cosine of 1/2. So the cosine of
    // one with the sum of all others is (1/2 + 1/2) / sqrt(1 + 1 + 1 + 2 / 2).
    for (const int i : {0, 1, 2}) EXPECT_NEAR(CosineOf(parts[i]), 0.5, 0.05) << i;
    EXPECT_NEAR(CosineOf(parts[3]), 0.0, 0.05);
  }
}

TEST(ContributionSamplesTest, AllPlacesAreLookedAtInTime) {
  constexpr int64_t kBlocks = 64;
  constexpr int64_t kElements = kBlocks * ContributionSamples::kSampledBlock;
  std::set<int64_t> seen;  // cosines, one for each choice of positions
  for (int64_t round = 0; round < 200; ++round) {
    ContributionSamples samples(kElements, kElements / 8);
    std::vector<float> place(kElements);
    for (int64_t i = 0; i < kElements; ++i) {
      place[i] = static_cast<float>(i / ContributionSamples::kSampledBlock);
    }
    std::vector<float> ones(kElements, 1.0f);
    Add(samples, 1, ones, params::Encoding::kFp32, nullptr, round);
    Add(samples, 2, place, params::Encoding::kFp32, nullptr, round);
    const std::vector<DirectionPart> parts = samples.EndRound();
    seen.insert(std::lround(parts[0].product * 1e9));
  }
  // In a round, every eighth block is sampled. So there are eight possible sets of blocks, and each
  // of them gives another value of `product`.
  EXPECT_THAT(seen, SizeIs(8));
}

TEST(ContributionSamplesTest, OfWeightsTheChangeIsLookedAt) {
  const std::vector<float> base = Random(3000, 1);
  const std::vector<float> change = Random(3000, 2);
  ContributionSamples samples(3000, 3000);
  Add(samples, 1, Sum(base, 0.01f, change), params::Encoding::kFp32, base.data());
  Add(samples, 2, Sum(base, -0.01f, change), params::Encoding::kFp32, base.data());
  const std::vector<DirectionPart> parts = samples.EndRound();
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_NEAR(CosineOf(parts[0]), -1.0, 1e-3);
}

TEST(ContributionSamplesTest, NobodyIsLookedAtWhereNothingIsSampledNorTooMany) {
  ContributionSamples nothing(300, 0);
  for (const uint32_t worker : {1, 2}) Add(nothing, worker, Random(300, worker));
  EXPECT_THAT(nothing.EndRound(), IsEmpty());
  ContributionSamples many(300, 300);
  for (uint32_t worker = 1; worker <= 300; ++worker) Add(many, worker, Random(300, worker));
  EXPECT_THAT(many.EndRound(), SizeIs(ContributionSamples::kMaxWorkers));
}

TEST(ContributionSamplesTest, OneAloneHasNothingBesideIt) {
  ContributionSamples samples(300, 300);
  Add(samples, 1, Random(300, 1));
  EXPECT_THAT(samples.EndRound(), IsEmpty());
  EXPECT_THAT(samples.EndRound(), IsEmpty());
}

}  // namespace
}  // namespace lodestar::shard
