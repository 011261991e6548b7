// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/embed.h"

#include <cmath>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/testing/kernel_test_rig.h"

namespace lodestar::cuda {
namespace {

struct Case {
  int64_t rows, context, width, vocabulary;
  std::function<int32_t(int64_t row)> token;
};

// Returns dtoken_table, one more row after its end, and dposition_table. All values are 0.5 before
// EmbedBackward() runs.
template <typename T>
std::vector<float> RunBackward(const Case& c, const std::vector<int32_t>& tokens,
                               const std::vector<T>& dy) {
  const int64_t token_elements = (c.vocabulary + 1) * c.width;
  const int64_t position_elements = c.context * c.width;
  return InBothOrders([&](KernelTestRig& rig) {
    float* dtokens = rig.Upload(std::vector<float>(token_elements, 0.5f));
    float* dpositions = rig.Upload(std::vector<float>(position_elements, 0.5f));
    EXPECT_EQ(EmbedBackward(dtokens, dpositions, rig.Upload(dy), rig.Upload(tokens), c.rows,
                            c.context, c.width, c.vocabulary,
                            rig.Allocate<char>(EmbedBackwardWorkspaceBytes(c.rows, c.width)),
                            rig.stream()),
              cudaSuccess);
    std::vector<float> result = rig.Download(dtokens, token_elements);
    const std::vector<float> positions = rig.Download(dpositions, position_elements);
    result.insert(result.end(), positions.begin(), positions.end());
    return result;
  });
}

template <typename T>
void ExpectBackward(const Case& c) {
  std::vector<int32_t> tokens(c.rows);
  for (int64_t row = 0; row < c.rows; ++row) tokens[row] = c.token(row);
  const std::vector<T> dy = Noises<T>(c.rows * c.width);
  const std::vector<float> got = RunBackward(c, tokens, dy);
  std::vector<double> want((c.vocabulary + 1 + c.context) * c.width, 0.5);
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t i = 0; i < c.width; ++i) {
      const double value = AsFloat(dy[row * c.width + i]);
      want[(c.vocabulary + 1 + row % c.context) * c.width + i] += value;
      if (tokens[row] < 0 || tokens[row] >= c.vocabulary) continue;
      want[tokens[row] * c.width + i] += value;
    }
  }
  // The sums have at most 700 terms, each below 1.
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << i;
}

TEST(EmbedTest, BackwardAddsRunsThatSpanTiles) {
  for (int64_t width : {1, 8, 33}) {
    for (const Case& c :
         {Case{1, 1, width, 1, [](int64_t) { return 0; }},
          // The cases are: one run over eleven tiles, runs of 65 rows, runs of one row, and two
          // alternating tokens.
          Case{700, 700, width, 2, [](int64_t) { return 1; }},
          Case{700, 64, width, 20, [](int64_t row) { return static_cast<int32_t>(row / 65); }},
          Case{700, 64, width, 700, [](int64_t row) { return static_cast<int32_t>(699 - row); }},
          Case{129, 200, width, 3, [](int64_t row) { return static_cast<int32_t>(row % 2); }}}) {
      ExpectBackward<float>(c);
      ExpectBackward<__nv_bfloat16>(c);
    }
  }
}

TEST(EmbedTest, BackwardOfRowsWiderThanABlock) {
  ExpectBackward<__nv_bfloat16>({70, 70, 1600, 4, [](int64_t) { return 2; }});
  ExpectBackward<float>({70, 70, 1601, 4, [](int64_t) { return 2; }});
}

TEST(EmbedTest, TokensOutsideTheVocabularyTouchNothing) {
  ExpectBackward<float>({200, 10, 8, 5, [](int64_t row) {
                           return row % 3 == 0 ? -1 : row % 3 == 1 ? 5 : 4;
                         }});
}

TEST(EmbedTest, ForwardGivesNaNForTokensOutsideTheVocabulary) {
  constexpr int64_t kWidth = 8;
  const std::vector<int32_t> tokens = {2, -1, 3, 1};
  const std::vector<float> table = Noises<float>(3 * kWidth, 1);
  const std::vector<float> positions = Noises<float>(2 * kWidth, 2);
  KernelTestRig rig(emulator::ThreadOrder::kForward);
  float* y = rig.Allocate<float>(4 * kWidth);
  ASSERT_EQ(EmbedForward(y, rig.Upload(tokens), rig.Upload(table), rig.Upload(positions), 4, 2,
                         kWidth, 3, rig.stream()),
            cudaSuccess);
  const std::vector<float> got = rig.Download(y, 4 * kWidth);
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t i = 0; i < kWidth; ++i) {
      if (row == 1 || row == 2) {
        EXPECT_TRUE(std::isnan(got[row * kWidth + i]));
      } else {
        EXPECT_EQ(got[row * kWidth + i],
                  table[tokens[row] * kWidth + i] + positions[row % 2 * kWidth + i]);
      }
    }
  }
}

}  // namespace
}  // namespace lodestar::cuda
