// SPDX-License-Identifier: Apache-2.0

#include "common/params/initial_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/params/shard_plan.h"
#include "common/testing/status_matchers.h"

namespace lodestar::params {
namespace {

TensorSpec MakeTensor(InitializerKind kind, float scale, int64_t size = 1003) {
  TensorSpec tensor;
  tensor.name = "w";
  tensor.shape = {size};
  tensor.initializer = {kind, scale};
  return tensor;
}

std::vector<float> Fill(const TensorSpec& tensor, uint64_t seed = 1) {
  std::vector<float> out(tensor.num_elements());
  FillInitial(tensor, seed, 0, absl::MakeSpan(out));
  return out;
}

TEST(FillInitialTest, IsTheSameHoweverTheTensorIsCut) {
  for (InitializerKind kind : {InitializerKind::kZeros, InitializerKind::kOnes,
                               InitializerKind::kNormal, InitializerKind::kUniform}) {
    const TensorSpec tensor = MakeTensor(kind, 0.5f);
    const std::vector<float> whole = Fill(tensor);
    for (int64_t piece : {1, 2, 3, 4, 5, 7, 64, 1000}) {
      std::vector<float> pieces(whole.size(), NAN);
      for (int64_t begin = 0; begin < pieces.size(); begin += piece) {
        FillInitial(tensor, 1, begin, absl::MakeSpan(pieces).subspan(begin, piece));
      }
      ASSERT_EQ(pieces, whole) << "pieces of " << piece;
    }
  }
}

TEST(FillInitialTest, DependsOnSeedAndName) {
  TensorSpec tensor = MakeTensor(InitializerKind::kNormal, 1.0f);
  const std::vector<float> first = Fill(tensor, 1);
  EXPECT_EQ(Fill(tensor, 1), first);
  EXPECT_NE(Fill(tensor, 2), first);
  EXPECT_NE(Fill(tensor, uint64_t{1} << 32 | 1), first);
  tensor.offset = 12345;
  tensor.block = 3;
  EXPECT_EQ(Fill(tensor, 1), first);
  tensor.name = "v";
  EXPECT_NE(Fill(tensor, 1), first);
}

TEST(FillInitialTest, NormalHasItsStandardDeviation) {
  constexpr int64_t kSize = 100'000;
  constexpr double kScale = 0.02;
  double sum = 0;
  double squares = 0;
  for (float value : Fill(MakeTensor(InitializerKind::kNormal, kScale, kSize))) {
    sum += value;
    squares += double{value} * value;
  }
  const double standard_error = kScale / std::sqrt(kSize);
  EXPECT_NEAR(sum / kSize, 0, 5 * standard_error);
  EXPECT_NEAR(std::sqrt(squares / kSize), kScale, 5 * standard_error);
}

TEST(FillInitialTest, UniformFillsItsInterval) {
  float lowest = 0;
  float highest = 0;
  for (float value : Fill(MakeTensor(InitializerKind::kUniform, 0.5f, 10'000))) {
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  EXPECT_GE(lowest, -0.5f);
  EXPECT_LE(highest, 0.5f);
  EXPECT_LT(lowest, -0.49f);
  EXPECT_GT(highest, 0.49f);
}

TEST(FillInitialRangeTest, ShardsJoinToTheWholeSpace) {
  ASSERT_OK_AND_ASSIGN(const Layout layout, BuildLayout(*ModelPreset("cnn")));
  std::vector<float> whole(layout.num_elements());
  FillInitialRange(layout, 9, {0, layout.num_elements()}, absl::MakeSpan(whole));
  for (int num_servers : {2, 5, 100}) {
    std::vector<float> joined;
    ASSERT_OK_AND_ASSIGN(const auto shards, PlanShards(layout, num_servers));
    for (const ElementRange& shard : shards) {
      std::vector<float> part(shard.size());
      FillInitialRange(layout, 9, shard, absl::MakeSpan(part));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, whole);
  }
  const TensorSpec& bias = *layout.Find("conv1.bias");
  EXPECT_EQ(whole[bias.offset], 0.0f);
  EXPECT_NE(whole[bias.offset - 1], 0.0f);
}

}  // namespace
}  // namespace lodestar::params
