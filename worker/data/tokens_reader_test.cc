#include "worker/data/tokens_reader.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 50257;

WindowCut Cut(int64_t vocabulary = kVocabulary) { return {4, vocabulary, 1}; }

std::vector<uint16_t> Tokens(int count) {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<uint16_t>(50000 + i));
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

void ExpectError(const absl::StatusOr<std::unique_ptr<Dataset>>& dataset, absl::StatusCode code,
                 const std::string& part) {
  EXPECT_EQ(dataset.status().code(), code) << dataset.status();
  EXPECT_THAT(std::string(dataset.status().message()), HasSubstr(part));
}

TEST(TokensReaderTest, ReadsFilesWithAndWithoutHeaderAlike) {
  TestFolder folder;
  const std::string content = TokenBytes(Tokens(100));
  auto plain = OpenTokensDataset(folder.Write("plain.bin", content), Cut());
  auto headed =
      OpenTokensDataset(folder.Write("headed.bin", Header(20240520, 1, 100) + content), Cut());
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
  auto dataset = OpenTokensDataset(folder.root(), Cut());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->num_train_samples(), 90 / 4 - 1);
}

TEST(TokensReaderTest, HeaderThatDoesNotMatchTheSizeIsAnError) {
  TestFolder folder;
  const std::string content = TokenBytes(Tokens(100));
  ExpectError(OpenTokensDataset(folder.Write("a.bin", Header(20240520, 1, 101) + content), Cut()),
              absl::StatusCode::kInvalidArgument, "a.bin: the header at offset 8 tells 101 tokens");
  ExpectError(
      OpenTokensDataset(folder.Write("b.bin", Header(20240520, 1, 0xffffffff) + content), Cut()),
      absl::StatusCode::kInvalidArgument, "b.bin: the header at offset 8");
  ExpectError(OpenTokensDataset(folder.Write("c.bin", Header(20240520, 7, 100) + content), Cut()),
              absl::StatusCode::kInvalidArgument, "c.bin: header version 7 at offset 4");
  ExpectError(
      OpenTokensDataset(folder.Write("d.bin", Header(20240520, 1, 100).substr(0, 500)), Cut()),
      absl::StatusCode::kInvalidArgument, "d.bin: ends at offset 500 inside its header");
}

TEST(TokensReaderTest, OddSizeIsAnError) {
  TestFolder folder;
  ExpectError(OpenTokensDataset(folder.Write("a.bin", TokenBytes(Tokens(100)) + "x"), Cut()),
              absl::StatusCode::kInvalidArgument, "a.bin: 201 bytes");
}

TEST(TokensReaderTest, TokenOutsideTheVocabularyNamesFileAndOffset) {
  TestFolder folder;
  const std::string content = TokenBytes(Tokens(100));
  ExpectError(OpenTokensDataset(folder.Write("a.bin", content), Cut(50042)),
              absl::StatusCode::kInvalidArgument, "a.bin: token 50042 at offset 84");
  ExpectError(
      OpenTokensDataset(folder.Write("b.bin", Header(20240520, 1, 100) + content), Cut(50099)),
      absl::StatusCode::kInvalidArgument, "b.bin: token 50099 at offset 1222");
  EXPECT_TRUE(OpenTokensDataset(folder.Path("a.bin"), Cut(50100)).ok());
}

TEST(TokensReaderTest, FolderWithoutTokensSaysWhatItLookedFor) {
  TestFolder folder;
  folder.Write("a.txt", "text");
  ExpectError(OpenTokensDataset(folder.root(), Cut()), absl::StatusCode::kNotFound, "*.bin");
  folder.Write("a.bin", "");
  ExpectError(OpenTokensDataset(folder.root(), Cut()), absl::StatusCode::kInvalidArgument,
              "empty corpus");
}

}  // namespace
}  // namespace lodestar
