// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/suggestion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lodestar {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kFlags = {"watch", "server", "learning_rate", "min_learning_rate"};

TEST(SuggestionTest, FindsWhatWasMistyped) {
  EXPECT_EQ(ClosestWord("wacth", kFlags), "watch");   // two neighbours swapped
  EXPECT_EQ(ClosestWord("watchh", kFlags), "watch");  // one letter too many
  EXPECT_EQ(ClosestWord("wtch", kFlags), "watch");    // one letter missing
  EXPECT_EQ(ClosestWord("wotch", kFlags), "watch");   // one letter replaced
  EXPECT_EQ(ClosestWord("learning-rate", kFlags), "learning_rate");
  EXPECT_EQ(ClosestWord("modle", {"mode", "model", "module"}), "model");
}

TEST(SuggestionTest, KeepsSilentWhereNothingIsNear) {
  EXPECT_EQ(ClosestWord("rounds", kFlags), "");
  EXPECT_EQ(ClosestWord("wxyz", kFlags), "");
  EXPECT_EQ(ClosestWord("", kFlags), "");
  EXPECT_EQ(ClosestWord("watch", {}), "");
}

TEST(SuggestionTest, KnowsWhatOtherProgramsCallAFlag) {
  EXPECT_THAT(FlagHint("lr", kFlags), HasSubstr("did you mean --learning_rate?"));
  EXPECT_THAT(FlagHint("coordinator", kFlags), HasSubstr("did you mean --server?"));
  EXPECT_THAT(FlagHint("port", {"listen"}), HasSubstr("did you mean --listen?"));
  EXPECT_THAT(FlagHint("port", kFlags), HasSubstr("did you mean --server?"));
}

TEST(SuggestionTest, KnowsWhichProgramHasAFlag) {
  EXPECT_THAT(FlagHint("data", kFlags), HasSubstr("--data is a flag of gpu_worker"));
  EXPECT_THAT(FlagHint("lr", {"data"}), HasSubstr("--learning_rate is a flag of ps_server"));
  EXPECT_EQ(FlagHint("wxyz", kFlags), "");
}

}  // namespace
}  // namespace lodestar
