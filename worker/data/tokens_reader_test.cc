// SPDX-License-Identifier: Apache-2.0

#include "worker/data/tokens_reader.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kVocabulary = 50257;

WindowCut Cut(int64_t vocabulary = kVocabulary) { return {4, vocabulary, 1}; }

std::vector<uint16_t> Tokens(int count) {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<uint16_t>(50000 + i));
  return tokens;
}

// Returns the content of a file of little-endian uint32 tokens.
std::string WideTokenBytes(const std::vector<uint32_t>& tokens) {
  std::string bytes;
  for (const uint32_t token : tokens) {
    for (int shift : {0, 8, 16, 24}) bytes.push_back(static_cast<char>(token >> shift));
  }
  return bytes;
}

std::vector<uint32_t> WideTokens(int count) {
  std::vector<uint32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(100000 + i);
  return tokens;
}

std::string Header(uint32_t magic, uint32_t version, uint32_t count) {
  std::string header(1024, '\0');
  const uint32_t words[] = {magic, version, count};
  for (int i = 0; i < 12; ++i) {
    header[i] = static_cast<char>(words[i / 4] >> (8 * (i % 4)));
  }
  return header;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenAs(const DataConfig& config,
                                                const WindowCut& cut = Cut()) {
  absl::StatusOr<TokensSource> source = OpenTokens(config);
  if (!source.ok()) return source.status();
  const absl::StatusOr<TokenWidth> width = ChooseTokenWidth(cut.vocabulary, &*source);
  if (!width.ok()) return width.status();
  return MakeWindowDataset(std::move(source->corpus), *width, cut);
}

absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& path,
                                              const WindowCut& cut = Cut()) {
  return OpenAs({.path = path}, cut);
}

void ExpectError(const absl::StatusOr<std::unique_ptr<Dataset>>& dataset, absl::StatusCode code,
                 const std::string& part) {
  EXPECT_EQ(dataset.status().code(), code) << dataset.status();
  EXPECT_THAT(std::string(dataset.status().message()), HasSubstr(part));
}

TEST(TokensReaderTest, ReadsFilesWithAndWithoutHeaderAlike) {
  TestFolder folder;
  const std::string content = TokenBytes(Tokens(100));
  auto plain = Open(folder.Write("plain.bin", content));
  auto headed = Open(folder.Write("headed.bin", Header(20240520, 1, 100) + content));
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(headed.ok()) << headed.status();
  EXPECT_EQ((*plain)->fingerprint(), (*headed)->fingerprint());
  for (const auto& dataset : {plain->get(), headed->get()}) {
    EXPECT_EQ(dataset->num_train_samples(), 90 / 4 - 1);
    ASSERT_EQ(dataset->num_heldout_samples(), 2);
    HostBatch batch;
    ASSERT_TRUE(dataset->ReadHeldout({1}, &batch).ok());
    EXPECT_EQ(batch.tokens, (std::vector<int32_t>{50094, 50095, 50096, 50097}));
    EXPECT_EQ(batch.targets, (std::vector<int32_t>{50095, 50096, 50097, 50098}));
    EXPECT_TRUE(batch.features.empty());
  }
}

TEST(TokensReaderTest, TakesTheBinFilesOfAFolder) {
  TestFolder folder;
  folder.Write("1.bin", TokenBytes(Tokens(50)));
  folder.Write("2.bin", Header(20240520, 1, 50) + TokenBytes(Tokens(50)));
  folder.Write("README", "odd");
  auto dataset = Open(folder.root());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_train_samples(), 90 / 4 - 1);
}

TEST(TokensReaderTest, HeaderThatDoesNotMatchTheSizeIsAnError) {
  TestFolder folder;
  const std::string content = TokenBytes(Tokens(100));
  ExpectError(Open(folder.Write("a.bin", Header(20240520, 1, 101) + content)),
              absl::StatusCode::kInvalidArgument, "a.bin: the header says 101 tokens of 2 bytes");
  ExpectError(Open(folder.Write("b.bin", Header(20240520, 1, 0xffffffff) + content)),
              absl::StatusCode::kInvalidArgument, "b.bin: the header says");
  ExpectError(Open(folder.Write("c.bin", Header(20240520, 7, 100) + content)),
              absl::StatusCode::kInvalidArgument,
              "c.bin: the header of llm.c has version 7 at offset 4");
  ExpectError(Open(folder.Write("d.bin", Header(20240520, 1, 100).substr(0, 500))),
              absl::StatusCode::kInvalidArgument, "d.bin: ends at offset 500 inside its header");
}

TEST(TokensReaderTest, OddSizeIsAnError) {
  TestFolder folder;
  ExpectError(Open(folder.Write("a.bin", TokenBytes(Tokens(100)) + "x")),
              absl::StatusCode::kInvalidArgument, "a.bin: 201 bytes");
}

TEST(TokensReaderTest, TokenOutsideTheVocabularyNamesFileAndOffset) {
  TestFolder folder;
  const std::string content = TokenBytes(Tokens(100));
  ExpectError(Open(folder.Write("a.bin", content), Cut(50042)), absl::StatusCode::kInvalidArgument,
              "a.bin: the token at offset 84 is 50042");
  ExpectError(Open(folder.Write("b.bin", Header(20240520, 1, 100) + content), Cut(50099)),
              absl::StatusCode::kInvalidArgument, "b.bin: the token at offset 1222 is 50099");
  EXPECT_TRUE(Open(folder.Path("a.bin"), Cut(50100)).ok());
}

TEST(TokensReaderTest, FolderWithoutTokensSaysWhatItLookedFor) {
  TestFolder folder;
  folder.Write("a.txt", "text");
  ExpectError(Open(folder.root()), absl::StatusCode::kNotFound, "*.bin");
  folder.Write("a.bin", "");
  ExpectError(Open(folder.root()), absl::StatusCode::kInvalidArgument, "empty corpus");
  folder.Write("a.bin", Header(20240520, 1, 0));
  ExpectError(Open(folder.root()), absl::StatusCode::kInvalidArgument, "a.bin has a header and 0");
}

TEST(TokensReaderTest, WideTokensAreKnownByTheHeaderForLlama) {
  TestFolder folder;
  const std::string path =
      folder.Write("t.bin", Header(20240801, 7, 100) + WideTokenBytes(WideTokens(100)));
  const auto dataset = Open(path, Cut(128256));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  HostBatch batch;
  ASSERT_TRUE((*dataset)->ReadHeldout({1}, &batch).ok());
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{100094, 100095, 100096, 100097}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{100095, 100096, 100097, 100098}));
  EXPECT_THAT((*dataset)->Describe(), HasSubstr("uint32 tokens, by the header of llm.c for Llama"));
}

TEST(TokensReaderTest, TokensOfAnotherVocabularyNameTheHeadersAndTheModels) {
  TestFolder folder;
  const std::string path =
      folder.Write("t.bin", Header(20240801, 7, 100) + WideTokenBytes(WideTokens(100)));
  EXPECT_THAT(Open(path).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("t.bin: the token at offset 1024 is 100000"),
                             HasSubstr("model's vocabulary is 50257"), HasSubstr("Llama 3"),
                             HasSubstr("128256"))));
}

TEST(TokensReaderTest, OtherFilesOfLlmcSayWhatTheyAre) {
  TestFolder folder;
  EXPECT_THAT(
      Open(folder.Write("e.bin", Header(20240522, 1, 3))).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("questions of an evaluation")));
  EXPECT_THAT(Open(folder.Write("m.bin", Header(20240326, 3, 1024))).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a model's weights")));
}

TEST(TokensReaderTest, TheFlagDecidesWhereThereIsNoHeader) {
  TestFolder folder;
  const std::string path = folder.Write("t.bin", WideTokenBytes(WideTokens(100)));
  const auto wide = OpenAs({.path = path, .token_bytes = 4}, Cut(128256));
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ((*wide)->num_train_samples(), 90 / 4 - 1);
  const auto narrow = OpenAs({.path = path, .token_bytes = 2}, Cut(65536));
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ((*narrow)->num_train_samples(), 180 / 4 - 1);
  EXPECT_NE((*wide)->fingerprint(), (*narrow)->fingerprint());
}

TEST(TokensReaderTest, WithoutFlagOrHeaderTheVocabularyDecides) {
  TestFolder folder;
  const std::string path = folder.Write("t.bin", WideTokenBytes(WideTokens(100)));
  const auto dataset = Open(path, Cut(128256));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_train_samples(), 90 / 4 - 1);
  EXPECT_THAT(Open(folder.Write("u.bin", TokenBytes(Tokens(101))), Cut(128256)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("202 bytes are not a whole number of uint32"),
                             HasSubstr("--token_bytes=2"))));
}

TEST(TokensReaderTest, WideTokensAreNotReadAsNarrowOnesInSilence) {
  TestFolder folder;
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 100; ++i) tokens.push_back(i * 511 % 50257);
  const std::string path = folder.Write("t.bin", WideTokenBytes(tokens));
  EXPECT_THAT(Open(path).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("look like uint32"), HasSubstr("--token_bytes=4"),
                             Not(HasSubstr("--token_bytes=2")))));
  EXPECT_THAT(OpenAs({.path = path, .token_bytes = 2}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--token_bytes=4")));
  EXPECT_TRUE(OpenAs({.path = path, .token_bytes = 4}).ok());
  const std::vector<uint32_t> bases = {0, 3, 1, 2, 2, 0, 1, 3, 3, 1, 0, 2, 1, 1, 2, 3, 0, 0, 2, 1};
  EXPECT_THAT(Open(folder.Write("bases.bin", WideTokenBytes(bases)), Cut(4)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("look like uint32")));
}

// Tokens of a small vocabulary are small numbers, like the upper halves of uint32 tokens.
TEST(TokensReaderTest, SmallVocabulariesDoNotLookLikeWideTokens) {
  TestFolder folder;
  std::vector<uint16_t> bases;
  std::vector<uint16_t> bytes;
  for (int i = 0; i < 100; ++i) {
    bases.push_back(static_cast<uint16_t>(i * i % 4));
    bytes.push_back(static_cast<uint16_t>(i * 7 % 256));
  }
  EXPECT_TRUE(Open(folder.Write("bases.bin", TokenBytes(bases)), Cut(4)).ok());
  EXPECT_TRUE(Open(folder.Write("bytes.bin", TokenBytes(bytes)), Cut(256)).ok());
}

TEST(TokensReaderTest, NarrowTokensAreNotReadAsWideOnesInSilence) {
  TestFolder folder;
  const std::string path = folder.Write("t.bin", TokenBytes(Tokens(100)));
  EXPECT_THAT(Open(path, Cut(128256)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--token_bytes=2")));
  EXPECT_THAT(OpenAs({.path = path, .token_bytes = 4}, Cut(128256)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--token_bytes=2")));
  EXPECT_TRUE(OpenAs({.path = path, .token_bytes = 2}, Cut(128256)).ok());
}

TEST(TokensReaderTest, TokenOutsideTheVocabularyAdvisesNoFlag) {
  TestFolder folder;
  EXPECT_THAT(Open(folder.Write("t.bin", TokenBytes(Tokens(100))), Cut(256)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("t.bin: the token at offset 0 is 50000"),
                             Not(HasSubstr("--token_bytes=")))));
}

TEST(TokensReaderTest, FilesAndFlagMustAgreeOnTheWidth) {
  TestFolder folder;
  const std::string narrow = Header(20240520, 1, 100) + TokenBytes(Tokens(100));
  folder.Write("d/1.bin", narrow);
  EXPECT_THAT(OpenTokens({.path = folder.Path("d"), .token_bytes = 4}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("1.bin"), HasSubstr("uint16"), HasSubstr("GPT-2"),
                             HasSubstr("--token_bytes=4"))));
  folder.Write("d/2.bin", Header(20240801, 7, 100) + WideTokenBytes(WideTokens(100)));
  EXPECT_THAT(OpenTokens({.path = folder.Path("d")}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("2.bin"), HasSubstr("uint32"), HasSubstr("Llama 3"),
                             HasSubstr("1.bin"))));
}

// The header of one file says nothing about the bytes of another file.
TEST(TokensReaderTest, FileWithoutHeaderIsJudgedByItsOwnBytes) {
  TestFolder folder;
  folder.Write("a/1.bin", Header(20240520, 1, 100) + TokenBytes(Tokens(100)));
  folder.Write("a/2.bin", WideTokenBytes(WideTokens(100)));
  EXPECT_THAT(OpenTokens({.path = folder.Path("a")}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("2.bin has no header"), HasSubstr("1.bin"))));
  folder.Write("b/1.bin", Header(20240801, 7, 100) + WideTokenBytes(WideTokens(100)));
  folder.Write("b/2.bin", TokenBytes(Tokens(100)));
  EXPECT_THAT(OpenTokens({.path = folder.Path("b")}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("2.bin has no header"), HasSubstr("1.bin"))));
  folder.Write("b/2.bin", WideTokenBytes(WideTokens(50)));
  EXPECT_OK(OpenTokens({.path = folder.Path("b")}));
  folder.Write("c/1.bin", TokenBytes(Tokens(100)));
  folder.Write("c/2.bin", WideTokenBytes(WideTokens(100)));
  EXPECT_THAT(
      OpenTokens({.path = folder.Path("c")}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("1.bin"), HasSubstr("2.bin"))));
}

TEST(TokensReaderTest, HeaderOfHeldOutDataThatDoesNotFitIsNotBlamedOnTheTrainingData) {
  TestFolder folder;
  const std::string train = folder.Write("train.bin", TokenBytes(Tokens(200)));
  const std::string heldout =
      folder.Write("other.bin", Header(20240801, 7, 30) + WideTokenBytes(WideTokens(30)));
  DataConfig config = {.path = train};
  config.heldout_path = heldout;
  const absl::Status status = OpenTokens(config).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(train)));
  EXPECT_THAT(std::string(status.message()), testing::StartsWith(heldout));
  // With the paths swapped, the message begins with the file without a header.
  std::swap(config.path, config.heldout_path);
  EXPECT_THAT(std::string(OpenTokens(config).status().message()), testing::StartsWith(train));
}

TEST(TokensReaderTest, SaysIfTheModelHasAnotherVocabularyThanTheHeader) {
  TestFolder folder;
  const std::string path =
      folder.Write("t.bin", Header(20240520, 1, 100) + TokenBytes(Tokens(100)));
  EXPECT_THAT(
      (*Open(path, Cut(128256)))->Describe(),
      HasSubstr("the model's vocabulary is 128256, but the vocabulary of the tokens is only"));
  EXPECT_THAT((*Open(path, Cut(50304)))->Describe(), Not(HasSubstr("vocabulary of the tokens")));
}

TEST(TokensReaderTest, HeldOutFilesAreNeverTrainedOn) {
  TestFolder folder;
  folder.Write("d/train.bin", TokenBytes(std::vector<uint16_t>(100, 7)));
  folder.Write("d/val.bin", TokenBytes(std::vector<uint16_t>(50, 9)));
  const auto dataset = Open(folder.Path("d"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_train_samples(), 100 / 4 - 1);
  EXPECT_EQ((*dataset)->num_heldout_samples(), 49 / 4);
  HostBatch batch;
  for (int64_t i = 0; i < (*dataset)->num_train_samples(); ++i) {
    ASSERT_TRUE((*dataset)->ReadTrain({SampleRef{i % 3, i}}, &batch).ok());
    for (const int32_t token : batch.targets) EXPECT_EQ(token, 7);
  }
  ASSERT_TRUE((*dataset)->ReadHeldout({0, 11}, &batch).ok());
  for (const int32_t token : batch.tokens) EXPECT_EQ(token, 9);
  EXPECT_THAT((*dataset)->Describe(), HasSubstr("val.bin"));
  // If the same content is split into training and held-out data in another way, it is another data
  // set.
  const auto cut = OpenAs({.path = folder.Path("d/train.bin")});
  const auto apart =
      OpenAs({.path = folder.Path("d/train.bin"), .heldout_path = folder.Path("d/val.bin")});
  ASSERT_TRUE(cut.ok() && apart.ok());
  EXPECT_NE((*cut)->fingerprint(), (*apart)->fingerprint());
  EXPECT_EQ((*dataset)->fingerprint(), (*apart)->fingerprint());
}

TEST(TokensReaderTest, CopyOfHeldOutTokensIsNotTrainedOnWhateverItsHeader) {
  TestFolder folder;
  folder.Write("d/train_1.bin", TokenBytes(Tokens(90)));
  folder.Write("d/train_2.bin", Header(20240520, 1, 50) + TokenBytes(Tokens(50)));
  folder.Write("d/val.bin", TokenBytes(Tokens(50)));
  const auto dataset = Open(folder.Path("d"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_train_samples(), 90 / 4 - 1);
  EXPECT_THAT((*dataset)->Describe(), HasSubstr("train_2.bin"));
}

TEST(TokensReaderTest, CopiesOfWholeHeldOutFilesAreNotTrainedOn) {
  TestFolder folder;
  for (int i = 0; i < 41; ++i) {
    const std::string tokens = TokenBytes(std::vector<uint16_t>(20, 1000 + i));
    folder.Write(absl::StrCat("d/", 100 + i, ".bin"), tokens);
    folder.Write(absl::StrCat("d/", 200 + i, ".bin"), tokens);
  }
  const auto dataset = Open(folder.Path("d"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::set<int32_t> heldout;
  HostBatch batch;
  for (int64_t i = 0; i < (*dataset)->num_heldout_samples(); ++i) {
    ASSERT_OK((*dataset)->ReadHeldout({i}, &batch));
    heldout.insert(batch.tokens.begin(), batch.tokens.end());
  }
  EXPECT_EQ(heldout.size(), 8);
  for (int64_t i = 0; i < (*dataset)->num_train_samples(); ++i) {
    ASSERT_OK((*dataset)->ReadTrain({SampleRef{i % 3, i}}, &batch));
    for (const int32_t token : batch.tokens) EXPECT_EQ(heldout.count(token), 0) << token;
  }
}

TEST(TokensReaderTest, AFileThatChangesWhileItIsTrainedOnIsAnError) {
  TestFolder folder;
  const std::string path = folder.Write("t.bin", TokenBytes(Tokens(100)));
  const auto dataset = Open(path);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  HostBatch batch;
  ASSERT_TRUE((*dataset)->ReadTrain({SampleRef{0, 0}}, &batch).ok());
  folder.Write("t.bin", TokenBytes(Tokens(50)));
  EXPECT_THAT((*dataset)->ReadTrain({SampleRef{0, 0}}, &batch),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("t.bin changed")));
  EXPECT_FALSE((*dataset)->ReadHeldout({0}, &batch).ok());
}

}  // namespace
}  // namespace lodestar::data
