// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/tuning.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

constexpr char kName[] = "fusion bf16 forward 2 x 3 x 4, bias";
constexpr char kOther[] = "product bf16 to fp32 2 x 3 x 4";

TuningOrigin Card() {
  return {.card = "NVIDIA H200",
          .compute_capability = 90,
          .cublaslt_version = 130100,
          .driver_version = 13000,
          .runtime_version = 13010};
}

// Returns a text with two choices.
std::string TextOfTwo() {
  Tuning tuning("", Card());
  tuning.Keep(kName, "fused", "fused 1.0 us, separate 2.0 us");
  tuning.Keep(kOther, "0123", "candidate 3 of 8");
  return tuning.Merge("");
}

TEST(TuningTest, WhatIsKeptIsFoundAgain) {
  const std::string text = TextOfTwo();
  EXPECT_THAT(text, HasSubstr("lodestar tuning 1\ncard: NVIDIA H200\ncompute capability: 9.0\n"
                              "cuBLASLt: 130100\ndriver: 13000\nruntime: 13010\n\n"));
  EXPECT_THAT(text,
              HasSubstr(absl::StrCat(" ", kName, " = fused | fused 1.0 us, separate 2.0 us\n")));
  const Tuning next(text, Card());
  EXPECT_EQ(next.Describe(), "");
  EXPECT_THAT(next.Find(kName), Optional(std::string("fused")));
  EXPECT_THAT(next.Find(kOther), Optional(std::string("0123")));
  EXPECT_EQ(next.Find("fusion bf16 forward 2 x 3 x 5"), std::nullopt);
  EXPECT_EQ(next.Merge(text), text);
  EXPECT_EQ(next.Merge(""), text) << "a file that was removed comes back whole";
}

TEST(TuningTest, WithoutATextNothingIsKept) {
  Tuning tuning(std::nullopt, Card());
  EXPECT_FALSE(tuning.is_kept());
  tuning.Keep(kName, "fused", "");
  EXPECT_EQ(tuning.Find(kName), std::nullopt);
  EXPECT_EQ(tuning.Merge(TextOfTwo()), "");
}

TEST(TuningTest, ChoicesOfOthersStayAndComeBeforeOwnOnes) {
  Tuning tuning("", Card());
  tuning.Keep(kName, "separate", "mine");
  tuning.Keep("product of mine", "89ab", "mine");
  const Tuning merged(tuning.Merge(TextOfTwo()), Card());
  EXPECT_THAT(merged.Find(kName), Optional(std::string("fused")));
  EXPECT_THAT(merged.Find(kOther), Optional(std::string("0123")));
  EXPECT_THAT(merged.Find("product of mine"), Optional(std::string("89ab")));
}

TEST(TuningTest, WhatWasRefusedIsReplaced) {
  Tuning tuning(TextOfTwo(), Card());
  tuning.Refuse(kOther, "it does not work");
  EXPECT_EQ(tuning.Find(kOther), std::nullopt);
  EXPECT_THAT(tuning.Describe(), AllOf(HasSubstr(kOther), HasSubstr("it does not work")));
  EXPECT_EQ(Tuning(tuning.Merge(TextOfTwo()), Card()).Find(kOther), std::nullopt);
  tuning.Keep(kOther, "4567", "measured again");
  const Tuning merged(tuning.Merge(TextOfTwo()), Card());
  EXPECT_THAT(merged.Find(kOther), Optional(std::string("4567")));
  EXPECT_THAT(merged.Find(kName), Optional(std::string("fused")));
}

TEST(TuningTest, ATextOfAnotherOriginIsLeftAloneAndReplaced) {
  TuningOrigin capability = Card(), library = Card(), driver = Card(), runtime = Card();
  capability.compute_capability = 80;
  library.cublaslt_version = 130200;
  driver.driver_version = 13020;
  runtime.runtime_version = 13020;
  for (const TuningOrigin& origin : {capability, library, driver, runtime}) {
    const Tuning tuning(TextOfTwo(), origin);
    EXPECT_EQ(tuning.Find(kName), std::nullopt);
    EXPECT_THAT(tuning.Describe(), AllOf(HasSubstr("will be replaced"), HasSubstr("it has '"),
                                         HasSubstr("and here is '")));
    EXPECT_THAT(tuning.Merge(TextOfTwo()), Not(HasSubstr(kName)));
  }
  EXPECT_THAT(Tuning(TextOfTwo(), driver).Describe(),
              HasSubstr("it has 'driver: 13000', and here is 'driver: 13020'"));
}

TEST(TuningTest, EachCardHasASectionThatOthersKeep) {
  TuningOrigin other = Card();
  other.card = "NVIDIA A100";
  Tuning first("", Card()), second(TextOfTwo(), other);
  EXPECT_THAT(second.Describe(), AllOf(HasSubstr("other cards' choices"), HasSubstr("A100")));
  EXPECT_EQ(second.Find(kName), std::nullopt);
  second.Keep(kName, "separate", "of the other");
  std::string text = second.Merge(TextOfTwo());
  EXPECT_THAT(Tuning(text, Card()).Find(kName), Optional(std::string("fused")));
  EXPECT_THAT(Tuning(text, other).Find(kName), Optional(std::string("separate")));
  first.Keep("product of mine", "89ab", "mine");
  text = first.Merge(text);
  EXPECT_THAT(Tuning(text, Card()).Find(kOther), Optional(std::string("0123")));
  EXPECT_THAT(Tuning(text, Card()).Find("product of mine"), Optional(std::string("89ab")));
  EXPECT_THAT(Tuning(text, other).Find(kName), Optional(std::string("separate")));
  EXPECT_EQ(Tuning(text, Card()).Describe(), "");
  EXPECT_EQ(Tuning(text, other).Describe(), "");
}

TEST(TuningTest, WhatIsNoTuningIsLeftAlone) {
  for (const std::string text : {"\n", "lodestar tuning 2\n", "{\"card\": 1}", "\x7f zip"}) {
    const Tuning tuning(text, Card());
    EXPECT_THAT(tuning.Describe(), HasSubstr("instead of 'lodestar tuning 1'")) << text;
    EXPECT_EQ(tuning.Merge(text), Tuning("", Card()).Merge(""));
  }
  EXPECT_THAT(Tuning("\x7f zip", Card()).Describe(), HasSubstr("'\\x7f zip'"));
  EXPECT_THAT(Tuning("lodestar tuning 1\n", Card()).Describe(),
              HasSubstr("before its header does"));
}

TEST(TuningTest, DamagedLinesAreLeftOutAndTold) {
  const std::string text = TextOfTwo();
  for (const auto& [from, to] : {std::pair{"= 0123", "= 0124"}, std::pair{"2 x 3 x 4 =", "="},
                                 std::pair{" = 0123 | candidate 3 of 8\n", ""}}) {
    const Tuning tuning(absl::StrReplaceAll(text, {{from, to}}), Card());
    EXPECT_EQ(tuning.Find(kOther), std::nullopt) << to;
    EXPECT_THAT(tuning.Find(kName), Optional(std::string("fused"))) << to;
    EXPECT_THAT(tuning.Describe(), HasSubstr("1 of 9, the first is line 9")) << to;
  }
}

TEST(TuningTest, ATextThatWasCutShortAnywhereGivesWholeChoicesOnly) {
  const std::string text = TextOfTwo();
  for (size_t size = 0; size < text.size(); ++size) {
    const Tuning tuning(text.substr(0, size), Card());
    const auto fusion = tuning.Find(kName);
    const auto product = tuning.Find(kOther);
    EXPECT_TRUE(fusion == std::nullopt || fusion == "fused") << size;
    EXPECT_TRUE(product == std::nullopt || product == "0123") << size;
  }
}

}  // namespace
}  // namespace lodestar::cuda
