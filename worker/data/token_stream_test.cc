// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_stream.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/test_folder.h"

namespace lodestar::data {
namespace {

class TokenStreamTest : public testing::Test {
 protected:
  std::shared_ptr<const DataFile> FileOf(const std::vector<uint8_t>& bytes) {
    const std::string path =
        folder_.Write(absl::StrCat(num_files_++), std::string(bytes.begin(), bytes.end()));
    return *DataFile::Open(path);
  }

  TestFolder folder_;
  int num_files_ = 0;
};

std::vector<int32_t> CopyOf(const TokenStream& stream, int64_t begin, int64_t count) {
  std::vector<int32_t> out(count, -1);
  EXPECT_OK(stream.Copy(begin, count, out.data()));
  return out;
}

TEST_F(TokenStreamTest, EveryRangeOverAllPartsIsRight) {
  const std::vector<uint8_t> bytes = {0, 1, 2, 3, 250, 251, 6, 7, 8, 255};
  TokenStream stream(TokenWidth::kOneByte);
  const auto first = FileOf(bytes);
  const auto second = FileOf(bytes);
  stream.Append(first, 0, 1);
  stream.Append(first, 1, 0);
  stream.Append(second, 1, 5);
  stream.Append(first, 6, 4);
  ASSERT_EQ(stream.num_tokens(), 10);
  for (int64_t begin = 0; begin <= 10; ++begin) {
    for (int64_t count = 0; begin + count <= 10; ++count) {
      EXPECT_EQ(CopyOf(stream, begin, count),
                std::vector<int32_t>(bytes.begin() + begin, bytes.begin() + begin + count));
    }
  }
}

TEST_F(TokenStreamTest, ReadsWideTokensAtOddOffsets) {
  const auto file = FileOf({99, 1, 0, 0x34, 0x12, 0xff, 0xff, 0, 0});
  TokenStream two(TokenWidth::kTwoBytes);
  two.Append(file, 1, 3);
  EXPECT_EQ(CopyOf(two, 0, 3), (std::vector<int32_t>{1, 0x1234, 65535}));
  EXPECT_EQ(CopyOf(two, 2, 1), (std::vector<int32_t>{65535}));
  TokenStream four(TokenWidth::kFourBytes);
  four.Append(file, 1, 2);
  EXPECT_EQ(CopyOf(four, 0, 2), (std::vector<int32_t>{0x12340001, 65535}));
}

TEST_F(TokenStreamTest, ReadsMoreThanOneBuffer) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 100'000; ++i) bytes.push_back(static_cast<uint8_t>(i % 251));
  TokenStream stream(TokenWidth::kOneByte);
  stream.Append(FileOf(bytes), 0, 100'000);
  const std::vector<int32_t> tokens = CopyOf(stream, 0, 100'000);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), tokens.begin()));
}

TEST_F(TokenStreamTest, AFileThatWasCutShortIsAnError) {
  const auto file = FileOf(std::vector<uint8_t>(100, 7));
  TokenStream stream(TokenWidth::kOneByte);
  stream.Append(file, 0, 100);
  std::filesystem::resize_file(file->path(), 50);
  int32_t token = 0;
  EXPECT_THAT(stream.Copy(99, 1, &token), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(TokenStreamTest, StartsEmpty) {
  EXPECT_EQ(TokenStream(TokenWidth::kOneByte).num_tokens(), 0);
}

}  // namespace
}  // namespace lodestar::data
