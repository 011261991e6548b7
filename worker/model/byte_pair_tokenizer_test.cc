// SPDX-License-Identifier: Apache-2.0

#include "worker/model/byte_pair_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/runtime/byte_letters.h"
#include "common/testing/status_matchers.h"

namespace lodestar::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a config with all bytes, some merges of them, and added tokens.
BytePairTokenizer::Config SmallConfig() {
  BytePairTokenizer::Config config;
  for (int byte = 0; byte < 256; ++byte) {
    config.tokens.emplace_back(LetterOfByte(static_cast<uint8_t>(byte)), byte);
  }
  config.merges = {{"h", "e"},           {"l", "l"},    {"he", "ll"},
                   {"\u0120", "hell"},   {"hell", "o"}, {"a", "a"},
                   {"aa", "aa"},         {"aa", "a"},   {"\u0120", "\u0120"},
                   {"\u00c3", "\u00a9"}, {"b", "c"},    {"a", "bc"},
                   {"ab", "c"},          {"a", "b"}};
  const char* const joined[] = {"he", "ll",   "hell", "\u0120hell",   "hello",
                                "aa", "aaaa", "aaa",  "\u0120\u0120", "\u00c3\u00a9",
                                "bc", "abc",  "ab"};
  for (const char* text : joined) {
    config.tokens.emplace_back(text, static_cast<int32_t>(config.tokens.size()));
  }
  config.added = {
      {"<|endoftext|>", 269}, {"<x>", 270, false}, {"<|end", 271, false}, {"<x><x>", 272, false}};
  return config;
}

// The expected tokens are those of the Python library tokenizers 0.23 for the same vocabulary.
TEST(BytePairTokenizerTest, MergesWithinWordsAndFindsAddedTokens) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, BytePairTokenizer::Create(SmallConfig()));
  EXPECT_THAT(tokenizer->Encode(""), IsEmpty());
  EXPECT_THAT(tokenizer->Encode("hello hello"), ElementsAre(260, 259, 111));
  EXPECT_THAT(tokenizer->Encode("aaaaaaa"), ElementsAre(262, 263));
  EXPECT_THAT(tokenizer->Encode("abc ab"), ElementsAre(267, 32, 268));
  EXPECT_THAT(tokenizer->Encode("  hello  "), ElementsAre(32, 259, 111, 264));
  EXPECT_THAT(tokenizer->Encode("h\u00e9llo"), ElementsAre(104, 265, 257, 111));
  EXPECT_THAT(tokenizer->Encode("abcabab"), ElementsAre(267, 268, 268));
  EXPECT_THAT(tokenizer->Encode("<|endoftext|>hello<x><x><x><|end<|endoftext|>"),
              ElementsAre(269, 260, 272, 270, 271, 269));
}

TEST(BytePairTokenizerTest, TokensAreBytes) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, BytePairTokenizer::Create(SmallConfig()));
  EXPECT_EQ(tokenizer->vocabulary(), 273);
  EXPECT_EQ(tokenizer->BytesOf(259), " hell");
  EXPECT_EQ(tokenizer->BytesOf(0xff), "\xff");
  EXPECT_EQ(tokenizer->BytesOf(272), "<x><x>");
  EXPECT_EQ(tokenizer->BytesOf(273), "");
  EXPECT_EQ(tokenizer->BytesOf(-1), "");
  EXPECT_EQ(tokenizer->end_of_text(), 269);
  EXPECT_THAT(tokenizer->Beginning(), ElementsAre(269));
  std::string text;
  for (const int32_t token : tokenizer->Encode("a\xff hello\xc3\x28 <x>\n")) {
    absl::StrAppend(&text, tokenizer->BytesOf(token));
  }
  EXPECT_EQ(text, "a\xff hello\xc3\x28 <x>\n");
}

TEST(BytePairTokenizerTest, WordsMayBeginWithASpaceOrReachToTheEnd) {
  BytePairTokenizer::Config config = SmallConfig();
  config.adds_space = true;
  EXPECT_THAT((*BytePairTokenizer::Create(config))->Encode("hello hello"),
              ElementsAre(259, 111, 259, 111));
  config = SmallConfig();
  config.splits_words = false;
  config.added.clear();
  EXPECT_THAT((*BytePairTokenizer::Create(config))->Encode("a  hello"),
              ElementsAre('a', ' ', 259, 'o'));
  EXPECT_THAT((*BytePairTokenizer::Create(config))->Beginning(), IsEmpty());
}

TEST(BytePairTokenizerTest, LongWordsTakeNoTimeSquared) {
  BytePairTokenizer::Config config = SmallConfig();
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, BytePairTokenizer::Create(config));
  EXPECT_EQ(tokenizer->Encode(std::string(1 << 20, 'a')).size(), 1 << 18);
}

TEST(BytePairTokenizerTest, VocabulariesWithHolesAreRefused) {
  BytePairTokenizer::Config config = SmallConfig();
  config.tokens['a'].first = "not a";
  EXPECT_THAT(BytePairTokenizer::Create(config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte 97")));
  config = SmallConfig();
  config.merges.emplace_back("a", "x");
  EXPECT_THAT(BytePairTokenizer::Create(config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"ax\" is not a token")));
  config = SmallConfig();
  config.tokens.back().second = 7;
  EXPECT_THAT(BytePairTokenizer::Create(config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token 7 is both")));
  config.tokens.back().second = -1;
  EXPECT_THAT(BytePairTokenizer::Create(config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("number -1")));
}

}  // namespace
}  // namespace lodestar::model
