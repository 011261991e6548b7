// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_file_detection.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/process/process_setup.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/data_file.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kNumTokens = 1000;
constexpr int32_t kNemoMagic = 278895051;

template <typename Number>
std::string BytesOf(const std::vector<Number>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()),
                     numbers.size() * sizeof(Number));
}

// Returns tokens of GPT-2's vocabulary as numbers of one type.
template <typename Number>
std::string TokensAs() {
  std::vector<Number> tokens;
  for (int i = 0; i < kNumTokens; ++i) tokens.push_back(static_cast<Number>(i * 7919 % 50257));
  return BytesOf(tokens);
}

// Returns the bytes with each number of `size` bytes reversed.
std::string Swapped(std::string bytes, size_t size) {
  for (size_t at = 0; at < bytes.size(); at += size) {
    std::reverse(bytes.begin() + at, bytes.begin() + at + size);
  }
  return bytes;
}

std::string WordHeader(std::vector<int32_t> words) {
  words.resize(256);
  return BytesOf(words);
}

// Returns a header as numpy.save() writes it.
std::string NumpyHeader(const std::string& dtype, const std::string& shape) {
  std::string text =
      absl::StrCat("{'descr': '", dtype, "', 'fortran_order': False, 'shape': ", shape, ", }");
  text.resize(117, ' ');
  text += '\n';
  return absl::StrCat(std::string("\x93NUMPY\x01\x00", 8), std::string("\x76\x00", 2), text);
}

class TokenFileDetectionTest : public testing::Test {
 protected:
  absl::StatusOr<TokenFileFacts> Detect(const std::string& content) {
    const auto file = DataFile::Open(folder_.Write("t.bin", content));
    if (!file.ok()) return file.status();
    return DetectTokenFile(**file);
  }
  void ExpectRefused(const std::string& content, const std::string& part) {
    EXPECT_THAT(Detect(content), StatusIs(absl::StatusCode::kInvalidArgument,
                                          AllOf(HasSubstr("t.bin"), HasSubstr(part),
                                                Not(HasSubstr("--token_bytes")))));
  }

  TestFolder folder_;
};

TEST_F(TokenFileDetectionTest, ReadsHeaderOfNemo) {
  for (const int32_t token_bytes : {2, 4}) {
    const std::string tokens = token_bytes == 2 ? TokensAs<uint16_t>() : TokensAs<uint32_t>();
    ASSERT_OK_AND_ASSIGN(const TokenFileFacts facts,
                         Detect(WordHeader({kNemoMagic, 1, kNumTokens, token_bytes}) + tokens));
    EXPECT_EQ(facts.writer, "NeMo");
    EXPECT_EQ(facts.token_bytes, token_bytes);
    EXPECT_EQ(facts.header_bytes, 1024);
  }
}

TEST_F(TokenFileDetectionTest, RefusesHeaderOfNemoThatDoesNotFit) {
  const std::string tokens = TokensAs<uint32_t>();
  ExpectRefused(WordHeader({kNemoMagic, 1, kNumTokens - 1, 4}) + tokens, "999 tokens");
  ExpectRefused(WordHeader({kNemoMagic, 1, kNumTokens, 2}) + tokens, "1000 tokens of 2 bytes");
  ExpectRefused(WordHeader({kNemoMagic, 1, kNumTokens / 2, 8}) + tokens, "8 bytes per token");
  ExpectRefused(WordHeader({kNemoMagic, 2, kNumTokens, 4}) + tokens, "version 2");
  ExpectRefused(WordHeader({kNemoMagic, 1, 0, 4}).substr(0, 100), "ends at offset 100");
}

TEST_F(TokenFileDetectionTest, ReadsArraysOfNumpy) {
  for (const auto& [dtype, tokens, token_bytes] :
       {std::tuple("<u2", TokensAs<uint16_t>(), 2), std::tuple("<u4", TokensAs<uint32_t>(), 4),
        std::tuple("<i4", TokensAs<int32_t>(), 4)}) {
    ASSERT_OK_AND_ASSIGN(const TokenFileFacts facts,
                         Detect(NumpyHeader(dtype, "(1000,)") + tokens));
    EXPECT_EQ(facts.writer, "NumPy");
    EXPECT_EQ(facts.token_bytes, token_bytes);
    EXPECT_EQ(facts.header_bytes, 128);
  }
}

TEST_F(TokenFileDetectionTest, RefusesOtherArraysOfNumpyWithTheConversion) {
  ExpectRefused(NumpyHeader("<i8", "(1000,)") + TokensAs<int64_t>(), "astype('<u4')");
  ExpectRefused(NumpyHeader(">u4", "(1000,)") + Swapped(TokensAs<uint32_t>(), 4), "'>u4'");
  ExpectRefused(NumpyHeader("<u2", "(10, 100)") + TokensAs<uint16_t>(), "shape (10, 100)");
  ExpectRefused(NumpyHeader("<u2", "(1001,)") + TokensAs<uint16_t>(), "1001 tokens");
  ExpectRefused(NumpyHeader("<u2", "(1000,)").substr(0, 60), "NumPy's header");
  ExpectRefused("\x93NUMPY", "NumPy's header");
}

TEST_F(TokenFileDetectionTest, RefusesUnknownHeader) {
  const std::string fields = WordHeader({12345, 1, kNumTokens, 2});
  ExpectRefused(fields + TokensAs<uint16_t>(), "magic number 12345");
  EXPECT_OK(Detect(fields));
}

TEST_F(TokenFileDetectionTest, RefusesOtherNumbersWithTheConversion) {
  ExpectRefused(TokensAs<int64_t>(), "'<i8').astype('<u4')");
  ExpectRefused(TokensAs<float>(), "'<f4').astype('<u4')");
  ExpectRefused(TokensAs<double>(), "'<f8').astype('<u4')");
  ExpectRefused(Swapped(TokensAs<uint32_t>(), 4), "'>u4').astype('<u4')");
  ExpectRefused(Swapped(TokensAs<int64_t>(), 8), "'>i8').astype('<u4')");
  // Some documents are padded with numbers that a loss ignores.
  ExpectRefused(TokensAs<int64_t>() + BytesOf(std::vector<int64_t>(500, -100)), "'<i8'");
}

TEST_F(TokenFileDetectionTest, TellsWidthsApart) {
  ASSERT_OK_AND_ASSIGN(const TokenFileFacts narrow, Detect(TokensAs<uint16_t>()));
  EXPECT_FALSE(narrow.looks_like_uint32);
  EXPECT_TRUE(narrow.is_never_uint32);
  ASSERT_OK_AND_ASSIGN(const TokenFileFacts wide, Detect(TokensAs<uint32_t>()));
  EXPECT_TRUE(wide.looks_like_uint32);
  EXPECT_TRUE(wide.is_never_uint16);
  EXPECT_FALSE(wide.is_never_uint32);
}

// Workers flush denormals to 0. Small integers that are read as floats are denormals.
TEST_F(TokenFileDetectionTest, TakesSmallIntegersForNoFloatsWhereDenormalsAreFlushed) {
  process::FlushDenormals();
  ASSERT_OK_AND_ASSIGN(const TokenFileFacts facts, Detect(TokensAs<uint32_t>()));
  EXPECT_TRUE(facts.looks_like_uint32);
}

TEST_F(TokenFileDetectionTest, RefusesPackedDatasetWithTheCommandThatCutsItsHeader) {
  const auto packed = [](char dtype) {
    return absl::StrCat("LITPKDS", std::string("\1\0\0\0\0\0\0\0", 8), std::string(1, dtype),
                        std::string("\0\0\1\0\0\0\0\0", 8));
  };
  ExpectRefused(packed(8) + TokensAs<uint16_t>(), "tail -c +25 ");
  ExpectRefused(packed(5) + TokensAs<int64_t>(), "'<i8', offset=24).astype('<u4')");
  EXPECT_THAT(Detect(packed(4) + TokensAs<int32_t>()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tail -c +25 "), HasSubstr("--token_bytes=4"))));
}

TEST_F(TokenFileDetectionTest, KnowsTheWidthBehindAShortHeader) {
  for (const absl::string_view header : {"TOKENS01", "A header, of 24 bytes...", "V\1\2\3"}) {
    ASSERT_OK_AND_ASSIGN(const TokenFileFacts wide,
                         Detect(absl::StrCat(header, TokensAs<uint32_t>())));
    EXPECT_TRUE(wide.looks_like_uint32) << header;
    EXPECT_TRUE(wide.is_never_uint16) << header;
    EXPECT_FALSE(wide.is_never_uint32) << header;
    ASSERT_OK_AND_ASSIGN(const TokenFileFacts narrow,
                         Detect(absl::StrCat(header, TokensAs<uint16_t>())));
    EXPECT_FALSE(narrow.looks_like_uint32) << header;
    EXPECT_TRUE(narrow.is_never_uint32) << header;
  }
  ExpectRefused("TOKENS01" + TokensAs<int64_t>(), "'<i8'");
  ExpectRefused("TOKENS01" + TokensAs<float>(), "'<f4'");
  ExpectRefused("TOKENS01" + Swapped(TokensAs<uint32_t>(), 4), "'>u4'");
}

TEST_F(TokenFileDetectionTest, RefusesNegativeNumbersWithTheLineThatTakesThemOut) {
  for (const int32_t sentinel : {-1, -100}) {
    std::vector<int32_t> narrow;
    std::vector<int64_t> wide;
    for (int i = 0; i < kNumTokens; ++i) {
      const int32_t token = i % 10 == 9 ? sentinel : i * 7919 % 50257;
      narrow.push_back(token);
      wide.push_back(token);
    }
    ExpectRefused(BytesOf(narrow), "'<i4'))[t >= 0].astype('<u4')");
    ExpectRefused(Swapped(BytesOf(narrow), 4), "'>u4'))[t >= 0].astype('<u4')");
    ExpectRefused(BytesOf(wide), "'<i8'))[t >= 0].astype('<u4')");
  }
}

// Returns tokens as in text, where frequent tokens have small numbers.
std::vector<uint16_t> TokensOfText(int count, double vocabulary) {
  std::minstd_rand generator(1);
  std::vector<uint16_t> tokens;
  for (int i = 0; i < count; ++i) {
    const double uniform = static_cast<double>(generator()) / std::minstd_rand::max();
    tokens.push_back(static_cast<uint16_t>(std::pow(vocabulary, uniform) - 1));
  }
  return tokens;
}

std::vector<uint16_t> UniformTokens(int count, uint32_t vocabulary) {
  std::minstd_rand generator(1);
  std::vector<uint16_t> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(static_cast<uint16_t>((generator() >> 8) % vocabulary));
  }
  return tokens;
}

TEST_F(TokenFileDetectionTest, RefusesBigEndianUint16OfText) {
  for (const double vocabulary : {1000, 32000, 50257, 65536}) {
    for (const int count : {500, 100'000}) {
      const std::string bytes = BytesOf(TokensOfText(count, vocabulary));
      EXPECT_OK(Detect(bytes)) << vocabulary << " " << count;
      ExpectRefused(Swapped(bytes, 2), "'>u2').astype('<u4')");
    }
  }
}

TEST_F(TokenFileDetectionTest, ShiftedTokensAreNotTakenForBigEndian) {
  EXPECT_OK(Detect("7 bytes" + BytesOf(TokensOfText(10'000, 50257))));
}

// If tokens are random, both byte orders are equally likely. If there are only 100 tokens, there
// are too few bytes to decide.
TEST_F(TokenFileDetectionTest, TakesUint16OfEitherOrderWhereItIsNotClear) {
  for (const int count : {30, 64, 100, 128, 1000, 30'000}) {
    for (const uint32_t vocabulary : {2u, 65u, 300u, 4096u, 32000u, 50257u, 65536u}) {
      EXPECT_OK(Detect(BytesOf(UniformTokens(count, vocabulary)))) << count << " " << vocabulary;
    }
    EXPECT_OK(Detect(Swapped(BytesOf(UniformTokens(count, 50257)), 2))) << count;
  }
  EXPECT_OK(Detect(Swapped(BytesOf(TokensOfText(100, 50257)), 2)));
  std::vector<uint16_t> two_tokens;
  for (const uint16_t bit : UniformTokens(kNumTokens, 2)) two_tokens.push_back(5 + 256 * bit);
  EXPECT_OK(Detect(BytesOf(two_tokens)));
}

// Tokens of small vocabularies, long runs of one token, and short files must not be refused.
TEST_F(TokenFileDetectionTest, LeavesOtherTokensAlone) {
  std::vector<uint16_t> bases;
  for (int i = 0; i < kNumTokens; ++i) bases.push_back(static_cast<uint16_t>(i * i % 4));
  std::vector<uint16_t> filled(5000, 0);
  std::copy(bases.begin(), bases.end(), filled.begin());
  for (const std::string& content :
       {BytesOf(bases), BytesOf(filled), BytesOf(std::vector<uint16_t>(kNumTokens, 0xffff)),
        BytesOf(std::vector<uint16_t>(kNumTokens, 0)), BytesOf(std::vector<int64_t>{1, 2, 3})}) {
    ASSERT_OK_AND_ASSIGN(const TokenFileFacts facts, Detect(content));
    EXPECT_EQ(facts.token_bytes, 0);
    EXPECT_FALSE(facts.looks_like_uint32);
  }
}

}  // namespace
}  // namespace lodestar::data
