// SPDX-License-Identifier: Apache-2.0

#include "worker/model/word_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "worker/model/unicode_classes.h"

namespace lodestar::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The expected words are those of pre_tokenizers.ByteLevel in the Python library tokenizers 0.23.
TEST(WordSplitterTest, CutsAsThePatternOfGpt2Does) {
  EXPECT_THAT(SplitIntoWords(""), IsEmpty());
  EXPECT_THAT(SplitIntoWords("Hello, world's  best!"),
              ElementsAre("Hello", ",", " world", "'s", " ", " best", "!"));
  EXPECT_THAT(SplitIntoWords("I'll'we 've  it's"),
              ElementsAre("I", "'ll", "'", "we", " '", "ve", " ", " it", "'s"));
  EXPECT_THAT(SplitIntoWords("''s'S"), ElementsAre("''", "s", "'", "S"));
  EXPECT_THAT(SplitIntoWords("12abc\u00b2\u0663"), ElementsAre("12", "abc", "\u00b2\u0663"));
}

TEST(WordSplitterTest, WhiteSpaceLeavesItsLastToTheNextWord) {
  EXPECT_THAT(SplitIntoWords("a\n\n b"), ElementsAre("a", "\n\n", " b"));
  EXPECT_THAT(SplitIntoWords("  "), ElementsAre("  "));
  EXPECT_THAT(SplitIntoWords("\t x"), ElementsAre("\t", " x"));
  EXPECT_THAT(SplitIntoWords("x \n"), ElementsAre("x", " \n"));
  EXPECT_THAT(SplitIntoWords("\u00a0a \u00a0b"), ElementsAre("\u00a0", "a", " ", "\u00a0", "b"));
  EXPECT_THAT(SplitIntoWords("!?\u2028\u2028 y"), ElementsAre("!?", "\u2028\u2028", " y"));
}

TEST(WordSplitterTest, LettersAreThoseOfAllScripts) {
  EXPECT_THAT(SplitIntoWords("caf\u00e9\u0301 \u6f22\u5b57\u3000x"),
              ElementsAre("caf\u00e9", "\u0301", " \u6f22\u5b57", "\u3000", "x"));
  EXPECT_EQ(ClassOf(U'\U00010d4a'), CharacterClass::kLetter);  // since Unicode 16
  EXPECT_EQ(ClassOf(U'\U0002ebf0'), CharacterClass::kLetter);  // since Unicode 15.1
  EXPECT_EQ(ClassOf(U'\U00010d40'), CharacterClass::kNumber);
  EXPECT_EQ(ClassOf(U'\u200b'), CharacterClass::kOther);
  EXPECT_EQ(ClassOf(U'\U0010ffff'), CharacterClass::kOther);
}

TEST(WordSplitterTest, BytesThatAreNoTextAreCharactersToo) {
  EXPECT_THAT(SplitIntoWords("a\xff\xc3"), ElementsAre("a", "\xff\xc3"));
  EXPECT_THAT(SplitIntoWords("\xe0\x80\xa0 x"), ElementsAre("\xe0\x80\xa0", " x"));
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  std::string joined;
  for (const absl::string_view word : SplitIntoWords(all)) joined += std::string(word);
  EXPECT_EQ(joined, all);
}

}  // namespace
}  // namespace lodestar::model
