// SPDX-License-Identifier: Apache-2.0

#include "worker/model/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/byte_letters.h"
#include "common/testing/status_matchers.h"

namespace lodestar::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

nlohmann::json Vocabulary() {
  nlohmann::json vocabulary = {{"he", 256}, {"<|endoftext|>", 257}};
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[LetterOfByte(static_cast<uint8_t>(byte))] = byte;
  }
  return vocabulary;
}

nlohmann::json TokenizerJson() {
  const nlohmann::json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return {{"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", byte_level},
          {"decoder", byte_level},
          {"added_tokens",
           {{{"id", 257}, {"content", "<|endoftext|>"}, {"normalized", true}, {"lstrip", false}}}},
          {"model", {{"type", "BPE"}, {"vocab", Vocabulary()}, {"merges", {"h e"}}}}};
}

TEST(TokenizerFilesTest, TokenizerJsonSaysItAll) {
  ASSERT_OK_AND_ASSIGN(BytePairTokenizer::Config config,
                       ParseTokenizerJson(TokenizerJson().dump()));
  EXPECT_EQ(config.tokens.size(), 258);
  EXPECT_THAT(config.merges, ElementsAre(Pair("h", "e")));
  ASSERT_EQ(config.added.size(), 1);
  EXPECT_EQ(config.added[0].token, 257);
  EXPECT_FALSE(config.added[0].is_found_first);
  EXPECT_FALSE(config.adds_space);
  EXPECT_TRUE(config.splits_words);
  nlohmann::json other = TokenizerJson();
  other["model"]["merges"] = nlohmann::json::array({nlohmann::json::array({"h", "e"})});
  other["post_processor"] = {{"type", "TemplateProcessing"},
                             {"single", {{{"Sequence", {{"id", "A"}}}}}}};
  other["pre_tokenizer"] = {{"type", "ByteLevel"}, {"use_regex", false}};
  ASSERT_OK_AND_ASSIGN(config, ParseTokenizerJson(other.dump()));
  EXPECT_THAT(config.merges, ElementsAre(Pair("h", "e")));
  EXPECT_TRUE(config.adds_space);
  EXPECT_FALSE(config.splits_words);
}

TEST(TokenizerFilesTest, OtherTokenizersAreRefusedByField) {
  const auto error_of = [](const std::string& pointer, nlohmann::json value) {
    nlohmann::json json = TokenizerJson();
    json[nlohmann::json::json_pointer(pointer)] = std::move(value);
    const absl::Status status = ParseTokenizerJson(json.dump()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pointer;
    return std::string(status.message());
  };
  EXPECT_THAT(error_of("/model/type", "Unigram"), AllOf(HasSubstr("Unigram"), HasSubstr("BPE")));
  EXPECT_THAT(error_of("/model/byte_fallback", true), HasSubstr("model.byte_fallback"));
  EXPECT_THAT(error_of("/model/ignore_merges", true), HasSubstr("model.ignore_merges"));
  EXPECT_THAT(error_of("/model/end_of_word_suffix", "</w>"), HasSubstr("</w>"));
  EXPECT_THAT(error_of("/model/vocab", nullptr), HasSubstr("vocab"));
  EXPECT_THAT(error_of("/model/vocab/he", "x"), HasSubstr("\"he\""));
  EXPECT_THAT(error_of("/model/merges", {"h"}), HasSubstr("merge 1"));
  EXPECT_THAT(error_of("/normalizer", {{"type", "NFC"}}),
              AllOf(HasSubstr("normalizer"), HasSubstr("NFC")));
  EXPECT_THAT(error_of("/pre_tokenizer/type", "Split"), HasSubstr("pre_tokenizer"));
  EXPECT_THAT(error_of("/post_processor/type", "TemplateProcessing"), HasSubstr("post_processor"));
  EXPECT_THAT(error_of("/decoder", nullptr), HasSubstr("decoder"));
  EXPECT_THAT(error_of("/added_tokens/0/lstrip", true), HasSubstr("<|endoftext|>: lstrip"));
  EXPECT_THAT(error_of("/added_tokens", 7), HasSubstr("added_tokens"));
  for (const char* bad : {"", "[]", "{", "7"}) {
    EXPECT_THAT(ParseTokenizerJson(bad).status(), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(TokenizerFilesTest, MessagesShowLittleOfAFileAndNoControls) {
  const std::string text = "\x1b[2J" + std::string(1 << 20, 'x');
  for (const char* pointer : {"/normalizer", "/model/type", "/decoder", "/added_tokens/0"}) {
    nlohmann::json json = TokenizerJson();
    json[nlohmann::json::json_pointer(pointer)] = text;
    const absl::Status status = ParseTokenizerJson(json.dump()).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument)) << pointer;
    EXPECT_LT(status.message().size(), 1000) << pointer;
    EXPECT_EQ(status.message().find('\x1b'), absl::string_view::npos) << pointer;
  }
}

TEST(TokenizerFilesTest, NestingThatIsTooDeepIsRefused) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(ParseTokenizerJson(absl::StrCat("{\"normalizer\":", deep, "}")),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(TokenizerFilesTest, FoldersHaveEitherKindOfFiles) {
  const std::string folder = testing::TempDir() + "/tokenizer";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  storage::FileSystem& disk = storage::FileSystem::Real();
  EXPECT_FALSE(HasTokenizer(disk, folder));
  EXPECT_THAT(OpenTokenizer(disk, folder).status(),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr(folder), HasSubstr("vocab"))));
  std::ofstream(folder + "/vocab.json") << Vocabulary().dump();
  std::ofstream(folder + "/merges.txt") << "#version: 0.2\nh e\n";
  EXPECT_TRUE(HasTokenizer(disk, folder));
  ASSERT_OK_AND_ASSIGN(auto tokenizer, OpenTokenizer(disk, folder));
  EXPECT_THAT(tokenizer->Encode("he<|endoftext|>"), ElementsAre(256, 257));
  nlohmann::json json = TokenizerJson();
  json["model"]["merges"] = nlohmann::json::array();
  std::ofstream(folder + "/tokenizer.json") << json.dump();
  for (const std::string& path : {folder, folder + "/tokenizer.json"}) {
    ASSERT_OK_AND_ASSIGN(tokenizer, OpenTokenizer(disk, path));
    EXPECT_THAT(tokenizer->Encode("he<|endoftext|>"), ElementsAre('h', 'e', 257));
  }
  std::ofstream(folder + "/tokenizer.json") << "{}";
  EXPECT_THAT(OpenTokenizer(disk, folder).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(folder)));
  std::ofstream(folder + "/tokenizer.json") << "version https://git-lfs.github.com/spec/v1\n";
  EXPECT_THAT(OpenTokenizer(disk, folder).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("git lfs pull")));
}

}  // namespace
}  // namespace lodestar::model
