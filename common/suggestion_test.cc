#include "common/suggestion.h"

#include <gtest/gtest.h>

namespace lodestar {
namespace {

const std::vector<std::string> kFlags = {"watch", "server", "learning_rate", "min_learning_rate"};

TEST(SuggestionTest, FindsWhatWasMistyped) {
  EXPECT_EQ(ClosestWord("wacth", kFlags), "watch");   // neighbours swapped
  EXPECT_EQ(ClosestWord("watchh", kFlags), "watch");  // one too many
  EXPECT_EQ(ClosestWord("wtch", kFlags), "watch");    // one left out
  EXPECT_EQ(ClosestWord("wotch", kFlags), "watch");   // another one
  EXPECT_EQ(ClosestWord("learning-rate", kFlags), "learning_rate");
  EXPECT_EQ(ClosestWord("modle", {"mode", "model", "module"}), "model");
}

TEST(SuggestionTest, KeepsSilentWhereNothingIsNear) {
  EXPECT_EQ(ClosestWord("rounds", kFlags), "");
  EXPECT_EQ(ClosestWord("wxyz", kFlags), "");
  EXPECT_EQ(ClosestWord("", kFlags), "");
  EXPECT_EQ(ClosestWord("watch", {}), "");
}

}  // namespace
}  // namespace lodestar
