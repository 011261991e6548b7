// SPDX-License-Identifier: Apache-2.0

#include "server/shard/contribution_mean.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/job/robust_mean.h"
#include "common/params/layout.h"
#include "kernels/codec/codec.h"

namespace lodestar::shard {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr int64_t kElements = 37;

std::vector<float> Vector(int tag) {
  std::vector<float> values(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<float>((i * 31 + tag * 17) % 29 - 14) / 8.0f;
  }
  return values;
}

struct Contribution {
  std::vector<float> values;
  int64_t weight = 1;
  float scale = 1.0f;
};

// Returns the kind of mean that --robust_mean=`name` selects. "direction" stands for a mean of
// directions over ranges of different size. Some elements are outside of all ranges.
MeanKind KindOf(const std::string& name) {
  if (name == "direction") return {.directions = {{0, 5}, {7, 8}, {8, kElements - 1}}};
  return {.robust = *job::ParseRobustMean(name)};
}

class ContributionMeanTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<ContributionMean> Make() {
    return MakeContributionMean(KindOf(GetParam()), kElements, pages_);
  }

  bool AdoptsEncoded() const { return GetParam() == "none"; }

  // Adds the contributions in the given order. MeanShare::order of each is its index.
  static void AddAll(const std::vector<Contribution>& contributions, const std::vector<int>& order,
                     ContributionMean& mean) {
    float total = 0.0f;
    for (const Contribution& contribution : contributions) {
      total += static_cast<float>(contribution.weight);
    }
    for (const int i : order) {
      const auto& [values, weight, scale] = contributions[i];
      mean.Add(params::Encoding::kFp32, reinterpret_cast<const std::byte*>(values.data()),
               {.scale = scale,
                .weight = weight,
                .factor = scale * static_cast<float>(weight) / total,
                .order = static_cast<uint32_t>(i)});
    }
  }

  static std::vector<float> Elements(const Page& page) {
    return {page.data(), page.data() + kElements};
  }

  std::vector<float> MeanOf(const std::vector<Contribution>& contributions,
                            const std::vector<int>& order) {
    const std::unique_ptr<ContributionMean> mean = Make();
    AddAll(contributions, order, *mean);
    mean->Finish(1.0f);
    return Elements(*mean->mean());
  }

  PagePool pages_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ContributionMeanTest,
                         testing::Values("none", "median", "trimmed:1", "trimmed:3", "direction"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

TEST_P(ContributionMeanTest, EqualContributionsAreTheirMean) {
  for (int count = 1; count <= 8; ++count) {
    std::vector<Contribution> equal;
    std::vector<int> order;
    for (int i = 0; i < count; ++i) {
      equal.push_back({Vector(3), 1 + i % 2});
      order.push_back(i);
    }
    // The tolerance allows for sums of up to 8 terms and a division.
    EXPECT_THAT(MeanOf(equal, order), Pointwise(FloatNear(2e-6f), Vector(3))) << count;
  }
}

TEST_P(ContributionMeanTest, ScalesAndWeightsCount) {
  const std::vector<Contribution> halves = {{Vector(1), 3, 0.5f}, {Vector(1), 1, 0.5f}};
  std::vector<float> wanted = Vector(1);
  for (float& value : wanted) value *= 0.5f;
  EXPECT_THAT(MeanOf(halves, {0, 1}), Pointwise(FloatNear(1e-6f), wanted));
  if (GetParam() == "direction") return;
  // If there are only two contributions, none can be left out.
  const std::vector<Contribution> two = {{Vector(1), 3}, {Vector(2), 1}};
  for (int64_t i = 0; i < kElements; ++i) {
    wanted[i] = 0.75f * Vector(1)[i] + 0.25f * Vector(2)[i];
  }
  EXPECT_THAT(MeanOf(two, {0, 1}), Pointwise(FloatNear(1e-6f), wanted));
}

TEST_P(ContributionMeanTest, WhatDoesNotComeIsMadeUpFor) {
  const std::unique_ptr<ContributionMean> mean = Make();
  const std::vector<float> values = Vector(1);
  // The contribution has half of the round's weight. The other half did not come.
  mean->Add(params::Encoding::kFp32, reinterpret_cast<const std::byte*>(values.data()),
            {.weight = 2, .factor = 0.5f});
  mean->Finish(2.0f);
  EXPECT_EQ(Elements(*mean->mean()), values);
  mean->Finish(1.0f);
  EXPECT_EQ(Elements(*mean->mean()), values) << "once more changes nothing";
}

TEST_P(ContributionMeanTest, AdoptedPagesAreTheSameAsValues) {
  const std::vector<Contribution> contributions = {{Vector(1), 2, 0.5f}, {Vector(2), 2, 0.25f}};
  const std::unique_ptr<ContributionMean> mean = Make();
  ASSERT_TRUE(mean->CanAdopt(params::Encoding::kFp32, kElements));
  EXPECT_FALSE(mean->CanAdopt(params::Encoding::kFp32, 2 * kElements))
      << "half of the page would lie idle";
  std::shared_ptr<Page> page = pages_.Allocate(kElements);
  std::copy_n(contributions[0].values.begin(), kElements, page->data());
  mean->Adopt(std::move(page), params::Encoding::kFp32,
              {.scale = 0.5f, .weight = 2, .factor = 0.25f, .order = 0});
  mean->Add(params::Encoding::kFp32,
            reinterpret_cast<const std::byte*>(contributions[1].values.data()),
            {.scale = 0.25f, .weight = 2, .factor = 0.125f, .order = 1});
  mean->Finish(1.0f);
  EXPECT_EQ(Elements(*mean->mean()), MeanOf(contributions, {0, 1}));
}

TEST_P(ContributionMeanTest, AdoptedEncodedPagesAreTheSameAsValues) {
  const MeanShare first = {.scale = 0.5f, .weight = 2, .factor = 0.25f, .order = 0};
  const MeanShare second = {.scale = 0.25f, .weight = 2, .factor = 0.125f, .order = 1};
  for (const params::Encoding encoding :
       {params::Encoding::kBf16, params::Encoding::kInt8, params::Encoding::TopK(2, 4)}) {
    std::vector<std::byte> bytes(params::EncodedBytes(encoding, kElements));
    codec::CodecOf(encoding).Encode(Vector(4).data(), kElements, {}, bytes.data());
    for (const bool has_second : {false, true}) {
      const std::unique_ptr<ContributionMean> added = Make();
      const std::unique_ptr<ContributionMean> adopted = Make();
      ASSERT_EQ(adopted->CanAdopt(encoding, kElements), AdoptsEncoded());
      if (!AdoptsEncoded()) continue;
      added->Add(encoding, bytes.data(), first);
      std::shared_ptr<Page> page = pages_.Allocate(kElements);
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(page->data()));
      adopted->Adopt(std::move(page), encoding, first);
      EXPECT_FALSE(adopted->CanAdopt(encoding, kElements));
      for (ContributionMean* const mean : {added.get(), adopted.get()}) {
        if (has_second) mean->Add(encoding, bytes.data(), second);
        mean->Finish(0.7f);
      }
      EXPECT_EQ(Elements(*adopted->mean()), Elements(*added->mean()))
          << params::EncodingText(encoding);
    }
  }
}

TEST_P(ContributionMeanTest, EncodedValuesAreDecoded) {
  for (const params::Encoding encoding :
       {params::Encoding::kBf16, params::Encoding::kFp16, params::Encoding::kInt8,
        params::Encoding::kInt4, params::Encoding::TopK(2, 4)}) {
    std::vector<std::byte> bytes(params::EncodedBytes(encoding, kElements));
    codec::CodecOf(encoding).Encode(Vector(4).data(), kElements, {}, bytes.data());
    std::vector<float> decoded(kElements);
    codec::CodecOf(encoding).Decode(bytes.data(), kElements, decoded.data());
    const std::unique_ptr<ContributionMean> mean = Make();
    mean->Add(encoding, bytes.data(), MeanShare());
    mean->Finish(1.0f);
    EXPECT_EQ(Elements(*mean->mean()), decoded) << params::EncodingText(encoding);
  }
}

TEST_P(ContributionMeanTest, ARoundLeavesNothingToTheNext) {
  const std::unique_ptr<ContributionMean> mean = Make();
  EXPECT_EQ(mean->mean(), nullptr);
  mean->Finish(3.0f);
  EXPECT_EQ(mean->mean(), nullptr) << "nothing came";
  AddAll({{Vector(1)}, {Vector(2)}}, {0, 1}, *mean);
  mean->Clear();
  mean->Finish(1.0f);
  EXPECT_EQ(mean->mean(), nullptr);
  AddAll({{Vector(3)}}, {0}, *mean);
  mean->Finish(1.0f);
  EXPECT_EQ(Elements(*mean->mean()), Vector(3));
}

TEST_P(ContributionMeanTest, WhatThereIsNoPageForIsLeftOut) {
  int num_pages = 0;
  PagePool pages(PagePool::Config{.create = [&num_pages](int64_t elements) {
    return ++num_pages == 1 ? Page::Create(elements) : nullptr;
  }});
  const std::unique_ptr<ContributionMean> mean =
      MakeContributionMean(KindOf(GetParam()), kElements, pages);
  AddAll({{Vector(1)}, {Vector(2)}, {Vector(3)}}, {0, 1, 2}, *mean);
  mean->Finish(1.0f);
  ASSERT_NE(mean->mean(), nullptr);
  if (GetParam() == "none") return;
  if (GetParam() == "direction") {
    // The pool has a page for the sum of the vectors, but no page for the sum of their directions.
    // So the result is the plain mean.
    std::vector<float> plain(kElements);
    for (int64_t i = 0; i < kElements; ++i) {
      plain[i] = (Vector(1)[i] + Vector(2)[i] + Vector(3)[i]) / 3.0f;
    }
    EXPECT_THAT(Elements(*mean->mean()), Pointwise(FloatNear(1e-6f), plain));
    return;
  }
  EXPECT_EQ(Elements(*mean->mean()), Vector(1));
}

class RobustContributionsTest : public ContributionMeanTest {};

INSTANTIATE_TEST_SUITE_P(Kinds, RobustContributionsTest, testing::Values("median", "trimmed:1"),
                         [](const auto& info) {
                           return std::string(info.param == "median" ? "median" : "trimmed_1");
                         });

TEST_P(RobustContributionsTest, OneWildOneOfFourLeadsNobody) {
  for (const float wild : {1e18f, -1e18f, -100.0f}) {
    std::vector<Contribution> contributions = {{Vector(0)}, {Vector(0)}, {Vector(0)}, {Vector(0)}};
    for (float& value : contributions[1].values) value = wild;
    EXPECT_THAT(MeanOf(contributions, {0, 1, 2, 3}), Pointwise(FloatNear(1e-6f), Vector(0)));
    // The outlier is left out, even if its weight is large.
    contributions[1].weight = 1000;
    EXPECT_THAT(MeanOf(contributions, {0, 1, 2, 3}), Pointwise(FloatNear(1e-6f), Vector(0)));
  }
}

TEST_P(RobustContributionsTest, AnyOrderOfArrivalGivesTheSameBits) {
  std::vector<Contribution> contributions;
  for (int i = 0; i < 5; ++i) contributions.push_back({Vector(i), 1 + i % 3, 0.3f});
  std::vector<int> order = {0, 1, 2, 3, 4};
  const std::vector<float> wanted = MeanOf(contributions, order);
  while (std::next_permutation(order.begin(), order.end())) {
    ASSERT_EQ(MeanOf(contributions, order), wanted);
  }
}

TEST_P(RobustContributionsTest, WhatWeighsNothingIsNoValueAmongTheOthers) {
  const std::vector<Contribution> contributions = {
      {Vector(1), 2}, {Vector(2), 0}, {Vector(3), 0}, {Vector(4), 0}};
  EXPECT_EQ(MeanOf(contributions, {0, 1, 2, 3}), Vector(1));
}

TEST_P(RobustContributionsTest, MoreThanARoundMayHaveAreLeftOut) {
  std::vector<Contribution> contributions;
  std::vector<int> order;
  for (int i = 0; i < job::kMaxRobustContributions + 8; ++i) {
    contributions.push_back(
        {std::vector<float>(kElements, i < job::kMaxRobustContributions ? 1 : 9)});
    order.push_back(i);
  }
  EXPECT_THAT(MeanOf(contributions, order), Each(1.0f));
}

class MeanOfSendersTest : public testing::Test {
 protected:
  static constexpr int64_t kSize = 6;
  static constexpr params::Encoding kTwo = params::Encoding::TopK(2, 2);

  void Add(const std::vector<float>& values, const MeanShare& share) {
    std::vector<std::byte> bytes(params::EncodedBytes(kTwo, kSize));
    codec::CodecOf(kTwo).Encode(values.data(), kSize, {}, bytes.data());
    mean_->Add(kTwo, bytes.data(), share);
  }
  std::vector<float> Mean() const { return {mean_->mean()->data(), mean_->mean()->data() + kSize}; }

  PagePool pages_;
  const std::unique_ptr<ContributionMean> mean_ =
      MakeContributionMean({.divides_by_senders = true}, kSize, pages_);
};

TEST_F(MeanOfSendersTest, AnElementIsDividedByThoseWhoSentIt) {
  // `factor` is for other kinds of mean, and is not used here.
  Add({8, 0, 0, 0, 0, 4}, {.weight = 1, .factor = 0.25f});
  Add({4, 0, 0, -2, 0, 0}, {.weight = 3, .factor = 0.75f});
  mean_->Finish(1.0f);
  EXPECT_THAT(Mean(), ElementsAre((8 + 3 * 4) / 4.0f, 0, 0, -2, 0, 4));
  mean_->Finish(0.5f);
  EXPECT_THAT(Mean(), ElementsAre(2.5f, 0, 0, -1, 0, 2)) << "once more: multiplied only";
}

TEST_F(MeanOfSendersTest, AScaleIsOfTheValuesAndNoWeight) {
  Add({8, 0, 0, 0, 0, 4}, {.scale = 0.5f, .weight = 1});
  Add({8, 2, 0, 0, 0, 0}, {.scale = 1.0f, .weight = 1});
  mean_->Finish(1.0f);
  EXPECT_THAT(Mean(), ElementsAre((4 + 8) / 2.0f, 2, 0, 0, 0, 2));
}

TEST_F(MeanOfSendersTest, OneAloneIsItsOwnMeanAndWhatWeighsNothingIsNone) {
  Add({0.3f, 0, 0, 0, 0, -0.3f}, {.weight = 7});
  Add({9, 9, 9, 9, 9, 9}, {.weight = 0});
  mean_->Finish(1.0f);
  const float sent = 0.30078125f;  // 0.3 in bf16
  EXPECT_THAT(Mean(), ElementsAre(sent, 0, 0, 0, 0, -sent));
  mean_->Clear();
  EXPECT_EQ(mean_->mean(), nullptr);
}

TEST_F(MeanOfSendersTest, WithoutAPageTheMeanIsFormedWithoutIt) {
  int num_pages = 0;
  PagePool pages(PagePool::Config{.create = [&num_pages](int64_t elements) {
    return ++num_pages == 1 ? Page::Create(elements) : nullptr;
  }});
  const std::unique_ptr<ContributionMean> mean =
      MakeContributionMean({.divides_by_senders = true}, kSize, pages);
  mean->Add(params::Encoding::kFp32, reinterpret_cast<const std::byte*>(Vector(1).data()), {});
  mean->Finish(1.0f);
  EXPECT_EQ(mean->mean(), nullptr);
}

class DirectionMeanTest : public testing::Test {
 protected:
  struct Sent {
    std::vector<float> values;
    int64_t weight = 1;
    float scale = 1.0f;
  };

  // `planned` is the weight of all contributions that were to come. 0 means the weight of those
  // that do come.
  std::vector<float> MeanOf(const std::vector<Sent>& sent, std::vector<params::ElementRange> parts,
                            int64_t planned = 0) {
    const auto size = static_cast<int64_t>(sent[0].values.size());
    int64_t arrived = 0;
    for (const Sent& one : sent) arrived += one.weight;
    if (planned == 0) planned = arrived;
    const std::unique_ptr<ContributionMean> mean =
        MakeContributionMean({.directions = std::move(parts)}, size, pages_);
    for (uint32_t i = 0; i < sent.size(); ++i) {
      const auto weight = static_cast<float>(sent[i].weight);
      mean->Add(params::Encoding::kFp32, reinterpret_cast<const std::byte*>(sent[i].values.data()),
                {.scale = sent[i].scale,
                 .weight = sent[i].weight,
                 .factor = sent[i].scale * weight / static_cast<float>(planned),
                 .order = i});
    }
    mean->Finish(static_cast<float>(planned) / static_cast<float>(arrived));
    return {mean->mean()->data(), mean->mean()->data() + size};
  }

  PagePool pages_;
};

constexpr float kRoot = 1.41421356f;

TEST_F(DirectionMeanTest, TwoAtRightAnglesAreAsLongOnTheDiagonal) {
  EXPECT_THAT(MeanOf({{{2, 0}}, {{0, 2}}}, {{0, 2}}), Pointwise(FloatNear(1e-6f), {kRoot, kRoot}));
  // Elements outside of all parts get the plain mean, and each part has a direction of its own.
  EXPECT_THAT(MeanOf({{{2, 0, 4, 2, 0}}, {{0, 2, 0, 2, 0}}}, {{0, 2}, {3, 5}}),
              Pointwise(FloatNear(1e-6f), {kRoot, kRoot, 2.0f, 2.0f, 0.0f}));
}

TEST_F(DirectionMeanTest, LengthsAreAveragedByWeightAndScale) {
  // The lengths are 6 and 2 with weights 1 and 3, so their mean is 3. The direction (1, 0) has
  // weight 1, and (0, 1) has weight 3.
  const float length = 3.0f / std::sqrt(10.0f);
  EXPECT_THAT(MeanOf({{{6, 0}, 1}, {{0, 1}, 3, 2.0f}}, {{0, 2}}),
              Pointwise(FloatNear(1e-6f), {length, 3 * length}));
  // A negative scale reverses the direction.
  EXPECT_THAT(MeanOf({{{2, 0}}, {{0, 1}, 1, -2.0f}}, {{0, 2}}),
              Pointwise(FloatNear(1e-6f), {kRoot, -kRoot}));
}

TEST_F(DirectionMeanTest, WhoDoesNotComeHasNeitherDirectionNorLength) {
  EXPECT_THAT(MeanOf({{{2, 0}}, {{0, 2}}}, {{0, 2}}, /*planned=*/5),
              Pointwise(FloatNear(1e-6f), {kRoot, kRoot}));
}

TEST_F(DirectionMeanTest, OneAloneIsItselfToTheBit) {
  EXPECT_THAT(MeanOf({{{0.3f, -0.7f, 1e-20f}, 7}}, {{0, 3}}), ElementsAre(0.3f, -0.7f, 1e-20f));
}

TEST_F(DirectionMeanTest, WhereDirectionsCancelItIsTheMean) {
  EXPECT_THAT(MeanOf({{{2, 1}}, {{-2, -1}}}, {{0, 2}}), ElementsAre(0, 0));
  // The three directions cancel, although the rounded fp32 sum of them is not exactly 0. So the
  // result is the plain mean, a third of the sum.
  const float height = std::sqrt(3.0f) / 2;
  EXPECT_THAT(MeanOf({{{3, 0}}, {{-0.5f, height}}, {{-0.5f, -height}}}, {{0, 2}}),
              Pointwise(FloatNear(1e-6f), {2.0f / 3, 0.0f}));
  EXPECT_THAT(MeanOf({{{2, 1}}, {{-4, -2}}}, {{0, 2}}), ElementsAre(-1, -0.5f));
}

TEST_F(DirectionMeanTest, NothingHasNoDirectionAndALengthOfNothing) {
  EXPECT_THAT(MeanOf({{{0, 4}}, {{0, 0}}}, {{0, 2}}), ElementsAre(0, 2));
  EXPECT_THAT(MeanOf({{{0, 0}}, {{0, 0}}}, {{0, 2}}), ElementsAre(0, 0));
  // The next vectors are very short or very long. Their inverse length must not become infinite in
  // fp32.
  EXPECT_THAT(MeanOf({{{0, 4}}, {{1e-42f, 1e-42f}}}, {{0, 2}}), ElementsAre(0, 2));
  EXPECT_THAT(MeanOf({{{0, 1e17f}}, {{1e17f, 0}}}, {{0, 2}}),
              Each(testing::FloatEq(1e17f / kRoot)));
}

TEST(TrimmedMeanTest, IsTheMeanOfThoseBetween) {
  PagePool pages;
  const std::unique_ptr<ContributionMean> mean =
      MakeContributionMean({.robust = *job::ParseRobustMean("trimmed:1")}, 2, pages);
  const float values[4][2] = {{1, 40}, {2, 30}, {4, 20}, {9, -7}};
  for (uint32_t i = 0; i < 4; ++i) {
    mean->Add(params::Encoding::kFp32, reinterpret_cast<const std::byte*>(values[i]),
              {.weight = i == 1 ? 3 : 1, .order = i});
  }
  mean->Finish(1.0f);
  const std::vector<float> result = {mean->mean()->data()[0], mean->mean()->data()[1]};
  EXPECT_THAT(result, ElementsAre((3 * 2 + 4) / 4.0f, (3 * 30 + 20) / 4.0f));
}

}  // namespace
}  // namespace lodestar::shard
